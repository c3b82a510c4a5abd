#!/usr/bin/env python3
"""An MCP server over stdio that is told of the request it works for.

It counts the words of a text file that came with the person's message, says on the way how far it is, and
leaves its report where the agent can attach it to its reply. It needs nothing beside Python 3. How to configure
it stands in configuration.md, "What a server is told of its request".
"""

import json
import os
import sys
import urllib.error
import urllib.request


def given(name):
    """What the host says; empty where it has nothing to say."""
    return os.environ.get("MONO_AGENT_" + name, "")


def read_attachment(path):
    """Reads a file of this very request: its path must be allowed, and the file the one that was stored there."""
    if path not in json.loads(given("MCP_ALLOWED_ATTACHMENT_PATHS") or "[]"):
        raise ValueError("this file did not come with the request")
    identities = json.loads(given("MCP_ALLOWED_ATTACHMENT_IDENTITIES") or "[]")
    stored = [(one["dev"], one["ino"]) for one in identities if one["path"] == path]
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if (found.st_dev, found.st_ino) not in stored:
            raise ValueError("this file is not the one that came with the request")
        return file.read()


def tell(key, message, state="running"):
    """Shows the person how far a piece of the work is. The same key takes the place of what it said before."""
    url = given("INTERACTION_PROGRESS_URL")
    if not url:
        return
    request = urllib.request.Request(
        url,
        json.dumps({"key": key, "message": message, "state": state}).encode(),
        {"Authorization": "Bearer " + given("INTERACTION_PROGRESS_TOKEN"), "Content-Type": "application/json"},
    )
    try:
        # The host is on this machine, whatever proxy there may be.
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5).close()
    except (urllib.error.URLError, OSError) as problem:
        # Work goes on when nobody hears of it: the host may just be busy.
        print("progress was not taken:", problem, file=sys.stderr)


def count_words(path):
    tell(path, "reading")
    try:
        words = len(read_attachment(path).decode("utf-8", "replace").split())
    except (ValueError, OSError) as problem:
        tell(path, str(problem), "failed")
        raise
    name = os.path.basename(path) + ".report.txt"
    report = os.path.join(given("MCP_RUN_OUTPUT_DIR"), name)
    with open(report, "x", encoding="utf-8") as file:
        file.write(f"{words} words, counted for {given('MCP_PRODUCING_CONVERSATION_ID')}\n")
    tell(path, f"{words} words", "completed")
    return f"{words} words. The report is {report}; PublishReplyFile attaches it to the reply."


TOOL = {
    "name": "count_words",
    "description": "Counts the words of a text file that came with the message, and writes a report.",
    "inputSchema": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "The file, as the message names it."}},
        "required": ["path"],
        "additionalProperties": False,
    },
}


def answer(method, parameters):
    if method == "initialize":
        version = parameters.get("protocolVersion", "2025-06-18")
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "words", "version": "1"}}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "ping":
        return {}
    if method == "tools/call" and parameters.get("name") == TOOL["name"]:
        try:
            text, failed = count_words(parameters.get("arguments", {}).get("path", "")), False
        except (ValueError, OSError) as problem:
            text, failed = str(problem), True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return None


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        unknown = {"error": {"code": -32601, "message": "no such method or tool"}}
        reply = {"jsonrpc": "2.0", "id": message["id"], **(unknown if result is None else {"result": result})}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
