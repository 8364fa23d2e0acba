//! Compiles the program of the provider `xdp`, where clang and the headers of libbpf are there. Without them everything else is built, and
//! `verbena doctor` says what is missing.

use std::path::PathBuf;
use std::process::Command;
use std::{env, io};

const SOURCES: &str = "src/xdp/program";

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rustc-check-cfg=cfg(xdp_program)");
    if env::var_os("CARGO_FEATURE_XDP").is_none() {
        return;
    }
    match compile() {
        Ok(()) => println!("cargo::rustc-cfg=xdp_program"),
        Err(reason) => {
            println!("cargo::warning=the provider xdp is left out: {}", reason.lines().next().unwrap_or_default());
            println!("cargo::rustc-env=VERBENA_XDP_MISSING={}", reason.replace('\n', " "));
        }
    }
}

fn compile() -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let object = PathBuf::from(variable("OUT_DIR")?).join("one_sided.bpf.o");
    let machine = variable("CARGO_CFG_TARGET_ARCH")?;
    let mut command = Command::new(&clang);
    // Version 3 of the instruction set has atomics that give what was there.
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // Where Debian keeps the kernel's headers of a machine.
    command.arg(format!("-I/usr/include/{machine}-linux-gnu"));
    command.arg("-c").arg(format!("{SOURCES}/one_sided.bpf.c")).arg("-o").arg(object);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{clang} could not compile it: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("{clang} is not installed")),
        Err(error) => Err(format!("{clang}: {error}")),
    }
}
