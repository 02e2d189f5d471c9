// The same as program.c, in Rust. With `--cfg library` it is linked by a C compiler in the cell,
// because a program that is linked here needs this machine's glibc.
use std::{env, fs, process};

fn run() -> Result<(), i32> {
    let words: Vec<String> = env::args().collect();
    let [_, from, dir, to] = &words[..] else { return Err(2) };
    let text = fs::read_to_string(from).map_err(|_| 2)?;
    let size = fs::metadata(from).map_err(|_| 3)?.len();
    let names = fs::read_dir(dir).map_err(|_| 3)?.count();
    let absent = fs::exists("absent").map_err(|_| 3)?;
    fs::write(to, format!("{text}{size} bytes, {names} names, local {absent}\n")).map_err(|_| 4)?;
    println!("done");
    Ok(())
}

#[cfg(not(library))]
fn main() {
    process::exit(run().err().unwrap_or(0));
}

#[cfg(library)]
#[unsafe(no_mangle)]
pub extern "C" fn main() -> i32 {
    process::exit(run().err().unwrap_or(0));
}
