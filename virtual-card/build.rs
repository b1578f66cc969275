// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verilates the core at both widths and compiles the models into the library.
//!
//! Where the compiler can, a model is compiled twice: a first one, which counts what it
//! executes, is driven by the traffic of shim/train.cpp; with these counts the compiler makes
//! the second one half as fast again. `MIDWIRE_TRAIN=0` leaves that out, for those who change
//! the RTL often.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A core: the name its model and C functions carry, DATA_W, CLOCK_PS.
const CORES: [(&str, u32, u32); 2] = [("mw512", 512, 3103), ("mw64", 64, 6400)];

fn main() {
    if let Err(e) = run() {
        eprintln!("{e}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?)
        .join("..")
        .canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let rtl = root.join("rtl");
    let verilator = verilator(&root)?;
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=shim");
    // It names the version of verilator.
    let tools = root.join("tools/requirements.txt");
    println!("cargo::rerun-if-changed={}", tools.display());

    let mut packages = Vec::new();
    for dir in [rtl.clone(), rtl.join("regs")] {
        let mut files: Vec<_> = fs::read_dir(&dir)?
            .map(|entry| entry.map(|e| e.path()))
            .collect::<std::io::Result<_>>()?;
        files.sort();
        for file in files
            .iter()
            .filter(|f| f.extension().is_some_and(|e| e == "sv"))
        {
            let name = file.to_string_lossy();
            if name.ends_with("_proof.sv") {
                continue;
            }
            println!("cargo::rerun-if-changed={name}");
            if name.ends_with("_pkg.sv") {
                packages.push(file.clone());
            }
        }
    }

    let header = rtl.join("regs/mw_regs.h");
    println!("cargo::rerun-if-changed={}", header.display());

    let mut runtime = library(&verilator);
    runtime.files(runtime_sources(&verilator));
    for (name, width, period) in CORES {
        let model = out.join(name);
        let sources = verilate(&verilator, &rtl, &packages, &model, name, width, period)?;
        let mut build = library(&verilator);
        build
            .out_dir(&model)
            .include(&model)
            .define("MW_HEADER", format!("\"V{name}.h\"").as_str())
            .define(
                "MW_ROOT_HEADER",
                format!("\"V{name}___024root.h\"").as_str(),
            )
            .define("MW_MODEL", format!("V{name}").as_str())
            .define("MW_NAME", name)
            .file("shim/core.cpp")
            .files(sources);
        if can_train(&build)? {
            let mut trainer = build.clone();
            trainer
                .flag("-fprofile-generate")
                .include(rtl.join("regs"))
                .define("MW_BYTES", (width / 8).to_string().as_str())
                .file("shim/train.cpp");
            let mut objects = trainer.try_compile_intermediates()?;
            objects.extend(runtime.try_compile_intermediates()?);
            train(&trainer, &objects, &model.join("train"))?;
            build.flag("-fprofile-use");
        }
        build.try_compile(name)?;
    }
    runtime.try_compile("mw_verilated_runtime")?;
    Ok(())
}

/// Whether training is wanted, what is compiled runs here, and the compiler leaves and finds
/// its counts beside the objects, as GCC does.
fn can_train(build: &cc::Build) -> Result<bool> {
    println!("cargo::rerun-if-env-changed=MIDWIRE_TRAIN");
    let wanted = env::var("MIDWIRE_TRAIN").as_deref() != Ok("0");
    let compiler = build.try_get_compiler()?;
    Ok(wanted && compiler.is_like_gnu() && env::var("HOST")? == env::var("TARGET")?)
}

/// Links the objects into `program` and runs it, so that its counts lie beside them.
fn train(build: &cc::Build, objects: &[PathBuf], program: &Path) -> Result<()> {
    let mut link = build.try_get_compiler()?.to_command();
    link.args(objects).arg("-lpthread").arg("-o").arg(program);
    for mut command in [link, Command::new(program)] {
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!(
                "{command:?} failed, {}:\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
    }
    Ok(())
}

/// The folder of the pinned verilator in the tools' environment.
fn verilator(root: &Path) -> Result<PathBuf> {
    let lib = root.join(".tools/venv/lib");
    let site = fs::read_dir(&lib).ok().and_then(|entries| {
        entries
            .filter_map(|entry| entry.ok())
            .map(|entry| entry.path().join("site-packages/verilator"))
            .find(|path| path.join("bin/verilator_bin").exists())
    });
    site.ok_or_else(|| {
        format!(
            "no verilator under {}: run `make tools` first",
            lib.display()
        )
        .into()
    })
}

/// Translates the core to C++ in `model`; returns the files to compile.
fn verilate(
    verilator: &Path,
    rtl: &Path,
    packages: &[PathBuf],
    model: &Path,
    name: &str,
    width: u32,
    period: u32,
) -> Result<Vec<PathBuf>> {
    // A file of an earlier translation must not be compiled along.
    if model.exists() {
        fs::remove_dir_all(model)?;
    }
    fs::create_dir_all(model)?;
    let output = Command::new(verilator.join("bin/verilator_bin"))
        .env("VERILATOR_ROOT", verilator)
        .args([
            "--cc",
            "-O3",
            "--x-assign",
            "fast",
            "--x-initial",
            "fast",
            "--no-assert",
        ])
        .args([
            "--output-split",
            "20000",
            "-Wno-fatal",
            "--top-module",
            "mw_core",
        ])
        .args(["--prefix", &format!("V{name}")])
        .arg(format!("-GDATA_W={width}"))
        .arg(format!("-GCLOCK_PS={period}"))
        .arg("--Mdir")
        .arg(model)
        .arg("-y")
        .arg(rtl)
        .arg("-y")
        .arg(rtl.join("regs"))
        .arg(rtl.join("lint.vlt"))
        .args(packages)
        .arg(rtl.join("mw_core.sv"))
        .output()?;
    if !output.status.success() {
        return Err(format!(
            "verilator rejects the core:\n{}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    let mut sources = Vec::new();
    for entry in fs::read_dir(model)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "cpp") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

/// The parts of Verilator's library that a model without traces needs.
fn runtime_sources(verilator: &Path) -> [PathBuf; 2] {
    ["verilated.cpp", "verilated_threads.cpp"].map(|file| verilator.join("include").join(file))
}

fn library(verilator: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .debug(false)
        .warnings(false)
        .include(verilator.join("include"))
        .include(verilator.join("include/vltstd"));
    for feature in [
        "COVERAGE",
        "SC",
        "TIMING",
        "TRACE",
        "TRACE_FST",
        "TRACE_VCD",
        "TRACE_SAIF",
    ] {
        build.define(&format!("VM_{feature}"), "0");
    }
    build
}
