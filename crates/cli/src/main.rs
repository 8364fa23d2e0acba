//! The `verbena` command: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    match verbena_cli::run(std::env::args_os()) {
        Ok(code) => code,
        Err(error) => error.report(),
    }
}
