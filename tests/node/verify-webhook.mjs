// The official client's check of a webhook's signature: `node verify-webhook.mjs SECRET DELIVERY`,
// where DELIVERY is the JSON of its headers and its body. Prints the body, or why it is refused.
import OpenAI from "openai";

const [secret, delivery] = process.argv.slice(2);
const { headers, body } = JSON.parse(delivery);
const client = new OpenAI({ apiKey: "unused" });
try {
  console.log(JSON.stringify({ body: await client.webhooks.unwrap(body, headers, secret) }));
} catch (error) {
  console.log(JSON.stringify({ refused: error.constructor.name }));
}
