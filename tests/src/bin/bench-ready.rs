//! `bench-ready`: from the start of the daemon with an empty state to a turn that has been admitted
//! and given its process: the first byte of its streamed answer. The request is sent as soon as
//! the API's port takes a connection. The whole answer's time stands beside it.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use mono_tests::bench::{Figure, Request, Samples, report};
use mono_tests::daemon::Setup;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Starts that count.
const ROUNDS: usize = 15;
/// Starts before.
const WARM_UP: usize = 2;
/// No start takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    report(measure())
}

fn measure() -> Result<Figure> {
    let [mut admitted, mut answered] = [const { Samples::new() }; 2];
    for round in 0..WARM_UP + ROUNDS {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let api = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut setup = Setup::new()?;
        setup.config["openaiApi"]["port"] = port.into();
        let request = Request::new(api, "agent", None, "hello", "[DONE]");
        let start = Instant::now();
        let daemon = setup.launch()?;
        while TcpStream::connect(api).is_err() {
            if start.elapsed() > PATIENCE {
                bail!("nothing listens on {api}:\n{}", daemon.log());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let listening = start.elapsed();
        let (first, last) = request
            .send()
            .with_context(|| format!("the first turn; the log:\n{}", daemon.log()))?;
        if round >= WARM_UP {
            admitted.push(listening + first);
            answered.push(listening + last);
        }
    }
    Ok(Figure::alone("ms", 1e3, &admitted).with("whole_answer", answered.median() * 1e3))
}
