"""Who calls the continuation service, for schemathesis: which capability goes with which call."""

import datetime
import json
import os

import schemathesis

# {"claim": TOKEN, "service": BEARER, "operator": TOKEN, "results": {ID: TOKEN}}
CALLERS = json.loads(os.environ["CONTINUATION_CALLERS"])
IDS = sorted(CALLERS["results"])


def number(value):
    """The same for the same value in each run, unlike hash()."""
    return sum(json.dumps(value, default=str).encode())


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Most of the ids are of continuations that there are."""
    name = (path_parameters or {}).get("id")
    if isinstance(name, str) and number(name) % 4:
        path_parameters["id"] = IDS[number(name) % len(IDS)]
    return path_parameters


@schemathesis.hook
def map_body(context, body):
    """Most of the deadlines are ones that may be met; no schema can say which those are."""
    deadline = body.get("deadline") if isinstance(body, dict) else None
    if isinstance(deadline, str) and 1 <= len(deadline) <= 64 and number(body) % 4:
        later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
        body["deadline"] = later.isoformat()
    return body


@schemathesis.auth(refresh_interval=None)
class Caller:
    def get(self, case, context):
        path = context.operation.path
        if path.endswith("/detached/claim"):
            return CALLERS["service"]
        if path.endswith("/claim"):
            return CALLERS["claim"]
        if path.startswith("/v1/operator/"):
            return CALLERS["operator"]
        own = (case.path_parameters or {}).get("id")
        return CALLERS["results"].get(own, CALLERS["results"][IDS[0]])

    def set(self, case, data, context):
        case.headers = case.headers or {}
        case.headers["Authorization"] = f"Bearer {data}"
        if context.operation.path.endswith("/detached/claim"):
            # A wrong name is refused like a wrong bearer; tests of their own do that.
            if case.headers.get("X-Mono-Agent-Service-Name"):
                case.headers["X-Mono-Agent-Service-Name"] = "indexer"
