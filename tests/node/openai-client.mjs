// The official client against the OpenAI-compatible channel: `node openai-client.mjs BASE KEY MESSAGES`.
// Does everything a client does and prints what came as one JSON object; judging it is the test's part.
import OpenAI from "openai";

const [baseURL, apiKey, messages] = process.argv.slice(2);
const say = JSON.parse(messages);
const client = new OpenAI({ baseURL, apiKey, timeout: 60_000 });
const user = (content) => ({ model: "agent", messages: [{ role: "user", content }] });

async function stream(request, options) {
  const chunks = [];
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true }, options)) {
    chunks.push(chunk);
  }
  return chunks;
}

async function refused(promise) {
  try {
    return { answered: await promise };
  } catch (error) {
    const { status, code, type, param, message } = error;
    return { class: error.constructor.name, status, code, type, param, message };
  }
}

const got = { errors: {} };
got.models = [];
for await (const model of client.models.list()) got.models.push(model);
got.plain = await client.chat.completions.create(user(say.plain));
got.stream = await stream({ ...user(say.plain), stream_options: { include_usage: true } });
got.streamWithoutUsage = await stream(user(say.plain));
got.parts = await client.chat.completions.create(user(say.parts));
got.streamParts = await stream(user(say.parts));
got.streamThought = await stream(user(say.thought));
got.ignored = await client.chat.completions.create({ ...user("hello"), temperature: 0.5, max_tokens: 7, n: 1 });

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
got.image = await client.chat.completions.create(user([
  { type: "text", text: "what is this picture?" },
  { type: "image_url", image_url: { url: `data:image/png;base64,${pixel}` } },
  { type: "image_url", image_url: { url: "https://example.invalid/never-fetched.png" } },
]));

const metadata = { conversation_id: "openai-client" };
await client.chat.completions.create({ ...user("my first message"), metadata });
await client.chat.completions.create({
  model: "agent",
  metadata,
  messages: [
    { role: "user", content: "my first message" },
    { role: "assistant", content: "pong" },
    { role: "user", content: "and my second" },
  ],
});
await client.chat.completions.create({
  model: "agent",
  messages: [
    { role: "user", content: "the transcript's first" },
    { role: "assistant", content: "noted" },
    { role: "user", content: "the transcript's last" },
  ],
});

const create = (more, using = client) => refused(using.chat.completions.create({ ...user("hello"), ...more }));
const tool = { type: "function", function: { name: "f", parameters: { type: "object" } } };
got.errors.wrongModel = await create({ model: "gpt-4" });
got.errors.wrongKey = await create({}, new OpenAI({ baseURL, apiKey: "the-wrong-key" }));
got.errors.noKey = await create({}, new OpenAI({ baseURL, apiKey: "x", defaultHeaders: { authorization: null } }));
got.errors.wrongRoute = await refused(client.embeddings.create({ model: "agent", input: "x" }));
got.errors.tools = await create({ tools: [tool] });
got.errors.tool_choice = await create({ tool_choice: "auto" });
got.errors.functions = await create({ functions: [tool.function] });
got.errors.response_format = await create({ response_format: { type: "json_object" } });
got.errors.audio = await create({ audio: { voice: "alloy", format: "mp3" } });
got.errors.modalities = await create({ modalities: ["text", "audio"] });
got.errors.toolCallsInMessages = await create({
  messages: [
    { role: "user", content: "hello" },
    { role: "assistant", tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }] },
    { role: "tool", tool_call_id: "1", content: "x" },
  ],
});
got.errors.failing = await create(user(say.failing));
got.errors.failingStream = await refused(stream(user(say.failing)));

process.stdout.write(JSON.stringify(got));
