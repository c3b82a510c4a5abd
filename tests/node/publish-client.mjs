// The official client against the endpoint for a run's commands: `node publish-client.mjs FILE…`, the
// address in its variable. Lists the tools, publishes each file, and prints what came as one JSON object.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const url = new URL(process.env.MONO_AGENT_ADAPTER_TOOLS_URL);

async function connected() {
  const client = new Client({ name: "publish-client", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(url));
  return client;
}

const client = await connected();
const { tools } = await client.listTools();
const got = { server: client.getServerVersion().name, tools: tools.map((tool) => tool.name), calls: [] };
for (const path of process.argv.slice(2)) {
  const { isError, content } = await client.callTool({ name: "PublishReplyFile", arguments: { path } });
  got.calls.push({ path, isError: isError ?? false, said: JSON.parse(content.map((block) => block.text).join("")) });
}
// A second program may begin while the first is still there.
const second = await connected();
got.second = (await second.listTools()).tools.length;
await second.close();
await client.close();
console.log(JSON.stringify(got));
