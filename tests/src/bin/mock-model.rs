//! `mock-model [--port N]`: the tests' model service as a program. See `mono_tests::mock_model`.
#![forbid(unsafe_code)]

use mono_tests::mock_model::MockModel;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut port = 18080;
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--port=") {
            Some(value) => Some(value.to_owned()),
            None if argument == "--port" => arguments.next(),
            None => None,
        };
        match value.and_then(|v| v.parse::<u16>().ok()) {
            Some(number) => port = number,
            None => {
                eprintln!("usage: mock-model [--port N]   (0 takes a free port)");
                return ExitCode::from(2);
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = runtime.and_then(|runtime| {
        runtime.block_on(async {
            let mock = MockModel::start_on(port).await?;
            println!("mock-model on {}", mock.base_url());
            mock.serve().await;
            Ok(())
        })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("mock-model can't serve: {e}");
            ExitCode::FAILURE
        }
    }
}
