//! The mechanics of application-owned tools with the tools that the MCP conformance suite asks for:
//! prints the address and serves until its input ends.
#![forbid(unsafe_code)]

use app_tools::{Answer, AppTool, Call, Content, Endpoint, ToolSet};
use serde_json::{Value, json};
use std::time::Duration;

/// One red pixel.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// The head of a WAVE file without a sample.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut endpoint = Endpoint::open(SuiteTools).await?;
    println!("{}", endpoint.url().reveal());
    // The end of our input is the word to end.
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .await??;
    endpoint.close().await;
    Ok(())
}

/// Tools with the names and answers that the suite expects.
struct SuiteTools;

impl ToolSet for SuiteTools {
    fn server_name(&self) -> &'static str {
        "mono-agent-conformance"
    }

    fn tools(&self) -> Vec<AppTool> {
        let plain = [
            "test_simple_text",
            "test_image_content",
            "test_audio_content",
            "test_embedded_resource",
            "test_multiple_content_types",
            "test_error_handling",
            "test_tool_with_progress",
        ];
        let nothing = json!({ "type": "object", "properties": {} });
        let mut tools: Vec<AppTool> = plain
            .iter()
            .map(|name| AppTool::new(*name, format!("What {name} is to do."), nothing.clone()))
            .collect();
        tools.push(AppTool::new(
            "json_schema_2020_12_tool",
            "A schema with everything that must arrive unchanged.",
            schema_2020_12(),
        ));
        tools.push(AppTool::new(
            "test_custom_headers",
            "Arguments that are repeated in headers.",
            json!({
                "type": "object",
                "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
                "required": ["region"],
            }),
        ));
        tools
    }

    async fn call(&self, call: Call) -> Answer {
        let resource = |uri: &str, text: &str| Content::embedded_text(uri, text);
        let pieces = |content: Vec<Content>| Answer {
            content,
            is_error: false,
        };
        match call.name.as_str() {
            "test_simple_text" => Answer::text("This is a simple text response for testing."),
            "test_image_content" => pieces(vec![Content::image(PICTURE, "image/png")]),
            "test_audio_content" => pieces(vec![Content::audio(SOUND, "audio/wav")]),
            "test_embedded_resource" => pieces(vec![resource(
                "test://embedded-resource",
                "This is an embedded resource content.",
            )]),
            "test_multiple_content_types" => pieces(vec![
                Content::text("Multiple content types test:"),
                Content::image(PICTURE, "image/png"),
                resource(
                    "test://mixed-content-resource",
                    r#"{"test":"data","value":123}"#,
                ),
            ]),
            "test_error_handling" => {
                Answer::error("This tool intentionally returns an error for testing")
            }
            "test_tool_with_progress" => {
                for done in [0.0, 50.0, 100.0] {
                    call.progress.report(done, Some(100.0), None).await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Answer::text("Three steps are done.")
            }
            _ => Answer::text(&Value::Object(call.arguments).to_string()),
        }
    }
}

fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
            }
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    })
}
