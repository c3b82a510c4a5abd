//! TLS checks the other side against the system's roots.
//!
//! The fixtures are an authority that no system trusts and a server certificate of it for
//! `localhost`; the authority's key was thrown away.
#![allow(clippy::unwrap_used)]

use mono_egress::http_client::{Tls, describe};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// Serves one connection after the other; returns the port.
async fn server() -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = CertificateDer::from_pem_file(fixture("tls-server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(fixture("tls-server.key")).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = [0_u8; 1024];
            let _ = stream.read(&mut head).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecure";
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        }
    });
    port
}

async fn get(host: &str, port: u16) -> Result<String, String> {
    let client = Tls::from_system().model_client().unwrap();
    let response = client
        .get(format!("https://{host}:{port}/"))
        .send()
        .await
        .map_err(describe)?;
    response.text().await.map_err(describe)
}

#[tokio::test]
async fn an_authority_that_the_system_does_not_know_is_refused() {
    let refused = get("localhost", server().await).await.unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
}

/// The roots come from the system, wherever the environment says it keeps them: the same test
/// binary, told of another place.
#[tokio::test]
async fn an_authority_of_the_system_is_trusted_for_its_names() {
    let outcome = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "with_the_fixture_as_the_system",
            "--ignored",
            "--nocapture",
        ])
        .env("SSL_CERT_FILE", fixture("tls-authority.pem"))
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(
        outcome.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[tokio::test]
#[ignore = "run by an_authority_of_the_system_is_trusted_for_its_names with its own environment"]
async fn with_the_fixture_as_the_system() {
    let port = server().await;
    assert_eq!(get("localhost", port).await.as_deref(), Ok("secure"));
    let refused = get("127.0.0.1", port).await.unwrap_err();
    assert!(refused.contains("not valid for name"), "{refused}");
}
