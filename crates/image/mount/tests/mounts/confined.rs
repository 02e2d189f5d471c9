//! A process that confines itself, and then tries what it must not be able to do.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use landlock::{AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use larder_mount::{Confinement, confine};

use crate::fixture::Test;

pub(crate) const TESTS: &[Test] =
    &[("a_confined_process_reaches_no_other_one", a_confined_process_reaches_no_other_one)];

/// The exit code of a process that could do nothing that it should not.
const CONFINED: i32 = 7;

fn abstract_socket(name: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(name).expect("is a name")
}

/// Plays a confined process: `SOCKET PORT READABLE WRITABLE`. SOCKET is the name of an abstract
/// socket.
pub(crate) fn try_everything(arguments: &[String]) {
    let [socket, port, readable, writable] = arguments else { panic!("{arguments:?}") };
    let (readable, writable) = (PathBuf::from(readable), PathBuf::from(writable));
    let connect = || UnixStream::connect_addr(&abstract_socket(socket));
    connect().expect("connects before it is confined");
    let wanted = Confinement {
        readable: std::slice::from_ref(&readable),
        credentials: &[],
        writable: &[(writable.clone(), writable.clone())],
        hidden: None,
        may_keep_user: true,
        memory_bytes: 1 << 30,
    };
    confine(&wanted).expect("confines");
    let refused = |what: &str, done: io::Result<()>| assert!(done.is_err(), "{what} is possible");
    refused("a connection to an abstract socket", connect().map(drop));
    refused("to listen over TCP", TcpListener::bind("127.0.0.1:0").map(drop));
    refused("to write to what is read-only", fs::write(readable.join("new"), ""));
    refused("to write to the root", fs::write("/new", ""));
    refused("to make a socket", UnixListener::bind(writable.join("socket")).map(drop));
    TcpStream::connect(("127.0.0.1", port.parse().expect("is a port"))).expect("connects over TCP");
    assert_eq!(fs::read(readable.join("file")).expect("reads"), b"bytes");
    fs::write(writable.join("new"), "written").expect("writes");
    fs::rename(writable.join("new"), writable.join("renamed")).expect("renames");
    fs::create_dir(writable.join("deep")).expect("makes");
    // Programs that it starts can do the same.
    let script = "echo more > \"$1/deep/file\" && echo gone > /dev/null";
    let ran = Command::new("/bin/sh").args(["-c", script, "sh"]).arg(&writable).stdin(Stdio::null()).status();
    assert!(ran.expect("runs").success());
    std::process::exit(CONFINED);
}

fn a_confined_process_reaches_no_other_one() {
    if larder_sys::effective_user() != 0 {
        return println!("    skipped: only root can confine a process");
    }
    let knows = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let knows = knows.handle_access(AccessNet::BindTcp).and_then(|rules| rules.scope(Scope::AbstractUnixSocket));
    if let Err(error) = knows {
        return println!("    skipped: this kernel does not restrict sockets by Landlock: {error}");
    }
    let directory = tempfile::tempdir().expect("makes a directory");
    let inside = |name: &str| directory.path().join(name);
    ["readable", "writable"].into_iter().for_each(|name| fs::create_dir(inside(name)).expect("makes"));
    fs::write(inside("readable/file"), "bytes").expect("writes");
    let name = format!("larder-test-{:x}", larder_sys::random_u64());
    let _socket = UnixListener::bind_addr(&abstract_socket(&name)).expect("listens");
    let server = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = server.local_addr().expect("has an address").port().to_string();
    let mut command = Command::new(std::env::current_exe().expect("is known"));
    command.args(["role-confined", &name, &port]).args([inside("readable"), inside("writable")]);
    assert_eq!(command.status().expect("runs").code(), Some(CONFINED));
    assert_eq!(fs::read(inside("writable/deep/file")).expect("reads"), b"more\n");
    assert!(Path::new(&inside("writable/renamed")).exists());
}
