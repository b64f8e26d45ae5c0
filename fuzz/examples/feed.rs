//! Feeds files to a target: `cargo run -p fuzz --example feed onnx FILE..`. Without arguments it lists the
//! targets and feeds each its own seeds.

use std::{env, fs, io, process::ExitCode};

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some((name, files)) = arguments.split_first() else {
        for target in fuzz::TARGETS {
            let seeds = (target.seeds)();
            let sound = seeds.iter().filter(|seed| (target.read)(seed)).count();
            println!("{:10} {sound} of {} seeds are taken for sound", target.name, seeds.len());
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some(target) = fuzz::target(name) else {
        eprintln!("there is no target `{name}`; without arguments this program lists them");
        return Ok(ExitCode::FAILURE);
    };
    for file in files {
        let sound = (target.read)(&fs::read(file)?);
        println!("{file}: {}", if sound { "taken for sound" } else { "refused" });
    }
    Ok(ExitCode::SUCCESS)
}
