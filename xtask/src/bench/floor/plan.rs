//! Steps as the plan that `benches/floor` follows; its bytes are drawn in `benches/floor/src/main.rs`.

use super::trace::{How, Step, Steps};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A plan that was written.
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    /// With what was added to make it as large as the hit's record.
    pub(crate) bytes: u64,
}

/// Writes the plan into `scratch`; `changing` is the directory that each hit changes by what it puts there.
pub(crate) fn write(steps: &Steps, changing: &Path, scratch: &Path) -> Result<Written> {
    let mut bytes = Vec::new();
    for (number, step) in steps.all.iter().enumerate() {
        add(&mut bytes, step, changing, &scratch.join(format!("blob-{number}")))
            .with_context(|| format!("cannot plan {step:?}"))?;
    }
    bytes.push(b'E');
    let record_bytes = usize::try_from(steps.record_bytes)?;
    if bytes.len() < record_bytes {
        bytes.resize(record_bytes, 0);
    }
    let path = scratch.join("plan");
    fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Written { path, bytes: bytes.len() as u64 })
}

fn add(bytes: &mut Vec<u8>, step: &Step, changing: &Path, blob: &Path) -> Result<()> {
    match step {
        Step::Open { inside, name, refuse_links } => {
            bytes.extend([b'D', u8::from(*inside), u8::from(*refuse_links)]);
            text(bytes, name.as_bytes());
        }
        Step::Use(number) => {
            bytes.push(b'U');
            bytes.extend(number.to_le_bytes());
        }
        Step::Look { inside, follow, name, path, there } => {
            let expect = if !there {
                0
            } else if path.as_path() == changing {
                1
            } else {
                2
            };
            bytes.extend([b'S', u8::from(*inside), u8::from(*follow), expect]);
            if expect == 2 {
                stamp(bytes, path, *follow)?;
            }
            text(bytes, name.as_bytes());
        }
        Step::Link { name, path } => {
            bytes.push(b'L');
            text(bytes, name.as_bytes());
            text(bytes, fs::read_link(path)?.as_os_str().as_bytes());
        }
        Step::Output { path, mode, how: How::Record { .. } } => {
            let content = fs::read(path)?;
            bytes.push(b'I');
            bytes.extend(mode.to_le_bytes());
            text(bytes, path.as_os_str().as_bytes());
            bytes.extend((content.len() as u64).to_le_bytes());
            bytes.extend(content);
        }
        Step::Output { path, mode, how: How::Blob { from, call, size_bytes, step_bytes } } => {
            fs::copy(from, blob)?;
            bytes.extend([b'C', *call]);
            bytes.extend(mode.to_le_bytes());
            text(bytes, path.as_os_str().as_bytes());
            bytes.extend(size_bytes.to_le_bytes());
            bytes.extend(step_bytes.to_le_bytes());
            text(bytes, blob.as_os_str().as_bytes());
        }
    }
    Ok(())
}

fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend(text);
    bytes.push(0);
}

fn stamp(bytes: &mut Vec<u8>, path: &Path, follow: bool) -> Result<()> {
    // The name of an open directory itself is empty: joining it leaves a slash, through which a link would be followed.
    let meta = if follow { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
    let ns = |seconds: i64, part: i64| (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(part as u64);
    let times = [ns(meta.mtime(), meta.mtime_nsec()), ns(meta.ctime(), meta.ctime_nsec())];
    [meta.ino(), meta.size()].into_iter().chain(times).for_each(|number| bytes.extend(number.to_le_bytes()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_as_large_as_the_record() {
        let scratch = std::env::temp_dir().join(format!("xtask-plan-{}", std::process::id()));
        fs::create_dir_all(&scratch).expect("can be made");
        let open = Step::Open { inside: false, name: "/w".into(), refuse_links: true };
        let look = |name: &str, there| Step::Look {
            inside: true,
            follow: false,
            name: name.into(),
            path: Path::new("/w").join(name),
            there,
        };
        let steps = Steps { all: vec![open, look("", true), look("x", false)], record_bytes: 30 };
        let written = write(&steps, Path::new("/w"), &scratch).expect("can be written");
        let bytes = fs::read(&written.path).expect("can be read");
        assert_eq!((written.bytes, bytes.len()), (30, 30));
        assert!(bytes.starts_with(b"D\x00\x01/w\0S\x01\x00\x01\0S\x01\x00\x00x\0E\0"));
        fs::remove_dir_all(&scratch).expect("removable");
    }
}
