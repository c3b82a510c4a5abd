//! Certificates checked against the system's roots, which are read when the first one comes.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;
use std::sync::{Arc, OnceLock};

/// The platform's verifier, made late. It decides everything; this only waits to make it.
#[derive(Debug)]
pub(crate) struct SystemRoots {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) loaded: OnceLock<Verifier>,
}

impl SystemRoots {
    /// A machine without certificates is asked again at the next connection.
    fn verifier(&self) -> Result<&Verifier, Error> {
        if self.loaded.get().is_none() {
            let fresh = Verifier::new(self.provider.clone()).map_err(|e| {
                Error::General(format!(
                    "no certificate can be checked, is ca-certificates installed? ({e})"
                ))
            })?;
            // A thread that was faster has the same roots.
            let _ = self.loaded.set(fresh);
        }
        self.loaded.get().ok_or(Error::HandshakeNotComplete)
    }
}

impl ServerCertVerifier for SystemRoots {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier()?.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
