//! A service whose work outlives the call that asked for it: it claims a continuation during the
//! call, returns at once, and submits the result when it is told to, or after a while.
#![forbid(unsafe_code)]

mod claim;
mod server;

use anyhow::Result;
use clap::{Parser, Subcommand};
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use server::Work;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Parser)]
struct Arguments {
    /// Where claims are kept, for the time after a restart.
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// The tools over standard input and output.
    Stdio,
    /// The tools over HTTP on loopback; prints the address.
    Http {
        /// 0 takes a free one.
        #[arg(long, default_value_t = 0)]
        port: u16,
        /// Work ends by itself after so many milliseconds.
        #[arg(long)]
        finish_after_ms: Option<u64>,
    },
    /// Submits a task's result.
    Finish {
        /// The task.
        task: String,
        /// What came of it.
        summary: String,
    },
    /// Tells how a task stands.
    Status {
        /// The task.
        task: String,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Arguments { folder, mode } = Arguments::parse();
    match mode {
        Mode::Stdio => {
            let work = Work {
                folder,
                finish_after: None,
            };
            work.serve(rmcp::transport::stdio_pipes())
                .await?
                .waiting()
                .await?;
        }
        Mode::Http {
            port,
            finish_after_ms,
        } => {
            let work = Work {
                folder,
                finish_after: finish_after_ms.map(Duration::from_millis),
            };
            http(work, port).await?;
        }
        Mode::Finish { task, summary } => {
            let claim = claim::kept(&folder, &task)?;
            println!("{}", claim::submit(&claim, &summary).await?);
        }
        Mode::Status { task } => {
            let claim = claim::kept(&folder, &task)?;
            println!("{}", claim::status(&claim).await?);
        }
    }
    Ok(())
}

async fn http(work: Work, port: u16) -> Result<()> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .enforce_origin_validation();
    let fresh = move || Ok(work.clone());
    let service = StreamableHttpService::new(fresh, Arc::<NeverSessionManager>::default(), config);
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}
