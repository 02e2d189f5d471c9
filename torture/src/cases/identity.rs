//! Class G: results that depend on the time, the host, the user, the processor, or on chance.

use super::texts::{H1, X_C};
use crate::case::{Case, case};
use crate::change::{nothing, put, script, sh};
use crate::machine::Need;

pub(super) fn cases() -> Vec<Case> {
    let parts = [varying, surroundings, compilers];
    parts.iter().flat_map(|cases| cases()).collect()
}

/// Commands with a different result in each run, so no result may be reused.
#[rustfmt::skip]
fn varying() -> Vec<Case> {
    let any = |name: &str, text: &str| case(format!("G/{name}")).any_sh(text).repeats().varies();
    let py = |name: &str,
    text: &str| case(format!("G/python-{name}")).any_py(text).repeats().varies();
    vec![
        any("date", "date +%s%N"), any("date-by-file", "date +%N > out").loose("out", "the time"),
        any("date-seconds", "date +%s"), any("date-only-day", "date +%F"),
        any("time-of-new-file", ": > t; stat -c %.9Y t; rm t"),
        any("touch-and-find", ": > t; find . -newer t; stat -c %Y t; rm t"),
        any("random", "od -An -N8 -tx8 /dev/urandom"), any("random-dev", "od -An -N8 -tx8 /dev/random"),
        any("random-bash", "bash -c 'echo $RANDOM'").program("bash"), any("uuid", "cat /proc/sys/kernel/random/uuid"),
        any("mktemp", "t=$(mktemp); echo $t; rm $t"),
        any("mktemp-local", "t=$(mktemp ./x.XXXXXX); echo $t; rm $t"), any("shuf", "shuf -i 1-100000 -n 5"),
        any("sort-R", "seq 50 | sort -R"), any("pid", "echo $$"), any("ppid", "echo $PPID"),
        any("pid-of-child", "sh -c 'echo $$'; :"), any("self", "readlink /proc/self"),
        any("stat", "cut -d' ' -f1 /proc/self/stat"),
        any("uptime", "cat /proc/uptime"), any("loadavg", "cat /proc/loadavg"),
        any("meminfo", "grep MemFree /proc/meminfo"), any("proc-stat", "head -1 /proc/stat"),
        any("ps", "ps -o pid= -p $$ || echo $$"), any("times", "times; date +%N"),
        any("df", "df -B1 . | tail -1; date +%N"),
        any("inode-of-new-file", "t=$(mktemp); stat -c '%i %.9Y' $t; rm $t"),
        any("interrupts", "cat /proc/interrupts | head -3; date +%N"),
        py("time", "import time; print(time.time())"), py("monotonic", "import time; print(time.monotonic_ns())"),
        py("perf-counter", "import time; print(time.perf_counter_ns())"),
        py("datetime", "import datetime; print(datetime.datetime.now())"),
        py("random", "import random; print(random.random())"),
        py("urandom", "import os; print(os.urandom(8))"), py("secrets", "import secrets; print(secrets.token_hex())"),
        py("uuid", "import uuid; print(uuid.uuid4())"), py("uuid1", "import uuid; print(uuid.uuid1())"),
        py("pid", "import os; print(os.getpid())"), py("id", "print(id(object()))"), py("hash", "print(hash('x'))"),
        py("gmtime", "import time; print(time.strftime('%H:%M:%S', time.gmtime()))"),
        py("clock-gettime-process", "import time; print(time.process_time_ns())"),
        py("tempfile", "import tempfile,os; n=tempfile.mkstemp()[1]; print(n); os.unlink(n)"),
        py("memory-address", "import ctypes; print(ctypes.addressof(ctypes.c_int()))"),
        py("loadavg", "import os,time; print(os.getloadavg(), time.time())"),
    ]
}

/// Commands whose result depends on the environment, which is changed between the runs.
#[rustfmt::skip]
fn surroundings() -> Vec<Case> {
    let under = |name: &str, text: &str,
    prelude: &str| case(format!("G/{name}")).any_sh(text).cold().prelude(prelude).then("otherwise", nothing())
        .then("otherwise, again", nothing()).prelude("").then("as at first", nothing());
    let host = "exec unshare -u sh -c 'hostname another; exec \"$@\"' sh \"$@\"";
    let need = Need::Works("unshare -u hostname x", "host name of its own");
    let one_cpu = Need::Works("[ $(nproc) -gt 1 ] && taskset -c 0 true", "second processor");
    vec![
        under("hostname", "uname -n; hostname", host).needs(need),
        under("hostname-by-proc", "cat /proc/sys/kernel/hostname", host).needs(need),
        under("hostname-by-python", "/usr/bin/python3 -c 'import socket; print(socket.gethostname())'", host)
            .needs(need),
        under("uname", "uname -srm", "exec setarch --uname-2.6 \"$@\"")
            .needs(Need::Works("setarch --uname-2.6 true", "setarch")),
        under("uname-machine", "uname -m", "exec setarch i686 \"$@\"")
            .needs(Need::Works("setarch i686 true", "setarch")),
        under("processors", "nproc", "taskset -cp 0 $$ >/dev/null").needs(one_cpu),
        under("processors-by-getconf", "getconf _NPROCESSORS_ONLN; nproc --all", "taskset -cp 0 $$ >/dev/null")
            .needs(one_cpu),
        under("processors-by-python", "/usr/bin/python3 -c 'import os; print(len(os.sched_getaffinity(0)))'", "taskset -cp 0 $$ >/dev/null")
            .needs(one_cpu),
        under("affinity-by-proc", "grep Cpus_allowed_list /proc/self/status", "taskset -cp 0 $$ >/dev/null")
            .needs(one_cpu),
        under("niceness", "nice", "renice -n 5 $$ >/dev/null"), under("limit-of-files", "ulimit -n", "ulimit -n 77"),
        under("limit-of-stack", "ulimit -s", "ulimit -s 1234"), under("limit-of-core", "ulimit -c", "ulimit -c 0"),
        under("limit-of-time", "ulimit -t", "ulimit -t 50"),
        under("limit-by-proc", "grep 'open files' /proc/self/limits", "ulimit -n 77"),
        under("limit-by-python", "/usr/bin/python3 -c 'import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))'", "ulimit -n 77"),
        under("umask", "umask", "umask 077"), under("umask-used", ": > out; mkdir e", "umask 077"),
        under("ignored-signals", "grep SigIgn /proc/self/status | tail -c 8", "trap '' HUP INT"),
        under("ignored-signal-used", "kill -HUP $$; echo lives", "trap '' HUP"),
        under("descriptors", "ls /proc/self/fd | wc -l", "exec 7</dev/null 8</dev/null"),
        under("descriptor-used", "cat <&7 2>/dev/null; echo done", "exec 7</etc/hostname"),
        under("user", "id -u; id -un", "exec setpriv --reuid=65534 --clear-groups \"$@\"").needs(Need::Root),
        under("groups", "id -G", "exec setpriv --groups 7,8 \"$@\"")
            .needs(Need::Works("setpriv --groups 7,8 true", "other groups")),
        under("locale-variable", "echo ü | wc -m", "export LC_ALL=C"),
        under("time-zone", "date -d @0 +%H:%M", "export TZ=Asia/Tokyo"),
        under("terminal-name", "echo $TERM; tput cols 2>/dev/null", "export TERM=vt100"),
        under("personality", "setarch -v --show 2>/dev/null; grep -c . /proc/self/personality", "exec setarch -R \"$@\"")
            .needs(Need::Works("setarch -R true", "setarch")),
        under("session", "ps -o sid= -p $$ | tr -d ' ' | grep -c .", "exec setsid -w \"$@\""),
        under("umask-of-mkdir", "mkdir -p a/b/c; stat -c %a a a/b", "umask 027"),
        under("home", "echo ~; cd && pwd | wc -l", "export HOME=/"),
        under("working-directory-link", "pwd -L", "cd -L . && export PWD=$PWD/."),
        under("mount", "cat m/f 2>/dev/null || echo none", "exec unshare -m sh -c 'mkdir -p m; mount -t tmpfs none m; echo x > m/f; exec \"$@\"' sh \"$@\"")
            .needs(Need::Mounts),
        under("network-names", "ls /sys/class/net", "exec unshare -n \"$@\"")
            .needs(Need::Works("unshare -n true", "network namespace")),
        under("pid-namespace", "ls /proc | grep -c '^[0-9]*$' >/dev/null; echo done", "exec unshare -pf \"$@\"")
            .needs(Need::Works("unshare -pf true", "PID namespace")),
        // `/proc/1/fd` there is that of the Python program, whose descriptors 3 to 42 are open.
        under("pid-namespace-with-another-first", "ls /proc | grep -c '^[0-9]*$' >/dev/null; echo done",
            "exec unshare -pf --mount-proc /usr/bin/python3 -c 'import os, subprocess, sys; opened = [os.open(\"/etc/hostname\", 0) for _ in range(40)]; sys.exit(subprocess.call([\"unshare\", \"-pf\"] + sys.argv[1:]))' \"$@\"")
            .needs(Need::Works("unshare -pf --mount-proc true", "PID namespace")).program("/usr/bin/python3"),
        under("oom-score", "cat /proc/self/oom_score_adj", "echo 7 > /proc/self/oom_score_adj"),
        under("timer-slack", "cat /proc/self/timerslack_ns", "echo 77777 > /proc/self/timerslack_ns 2>/dev/null || :"),
        under("no-new-privileges", "grep NoNewPrivs /proc/self/status", "exec setpriv --no-new-privs \"$@\"")
            .needs(Need::Works("setpriv --no-new-privs true", "setpriv")),
        under("scheduler", "chrt -p $$ | head -1 | sed 's/.*: //'", "exec chrt --batch 0 \"$@\"")
            .needs(Need::Works("chrt --batch 0 true", "chrt")),
        case("G/etc-file").any_sh("cat /etc/hostname /etc/os-release 2>/dev/null").twice(),
        case("G/cpuinfo").any_sh("grep -m1 -c flags /proc/cpuinfo").repeats(),
        case("G/getconf").any("getconf PAGE_SIZE").twice().may_miss(),
        case("G/lscpu").any_sh("lscpu | grep Architecture").repeats(),
        case("G/arch").any("arch").repeats(),
        case("G/tty").any("tty").cold().tty(24, 80).then("on a terminal", nothing())
            .mask("/dev/pts/[0-9]+", "the number is the next free"),
        case("G/whoami").any("whoami").repeats(),
        case("G/logname").any_sh("logname 2>&1; :").repeats(),
    ]
}

/// Compilers in a changed environment. Most of their results do not depend on it.
#[rustfmt::skip]
fn compilers() -> Vec<Case> {
    let hello = |name: &str| case(format!("G/compile-{name}")).both().file("x.c", X_C).file("h.h", H1)
        .cmd("cc -c x.c -o x.o");
    let tool = |name: &str,
    text: &str| hello(name).setup(script("my-cc", format!("exec @CC@ -DK=\"$({text})\" \"$@\"\n")))
        .file("x.c", "int v = K;\n").cmd("./my-cc -c x.c -o x.o");
    vec![
        hello("on-another-host").needs(Need::Works("unshare -u hostname x", "host name of its own")).twice()
            .prelude("exec unshare -u sh -c 'hostname another; exec \"$@\"' sh \"$@\"").back("another host", nothing()),
        hello("on-one-processor").twice().prelude("taskset -cp 0 $$ >/dev/null").back("one processor", nothing()),
        hello("nice").twice().prelude("renice -n 5 $$ >/dev/null").back("nice", nothing()),
        hello("fewer-files").twice().prelude("ulimit -n 99").then("fewer files", nothing()),
        hello("less-stack").twice().prelude("ulimit -s 4096").then("less stack", nothing()),
        hello("uname-of-old").needs(Need::Works("setarch --uname-2.6 true", "setarch")).twice()
            .prelude("exec setarch --uname-2.6 \"$@\"").then("old kernel", nothing()),
        hello("march-native").cmd("cc -march=native -O2 -c x.c -o x.o").twice().may_miss(),
        hello("march-native-Q").cmd("cc -march=native -E -dM -x c /dev/null").repeats(),
        hello("mtune-native").cmd("cc -mtune=native -mcpu=native -S x.c -o x.s").repeats(),
        hello("other-seed").cmd("cc -frandom-seed=1 -flto -c x.c -o x.o").twice().may_miss()
            .cmd("cc -frandom-seed=2 -flto -c x.c -o x.o").then("another seed", nothing()),
        hello("randomised-layout").cmd("cc -frandomize-layout-seed=5 -c x.c -o x.o").repeats(),
        tool("script-asks-date", "date +%N | cut -c1-8 | sed s/^0*//").loose("x.o", "the time is in it").cold().fresh()
            .then("again", nothing()).fresh(),
        tool("script-asks-random", "od -An -N2 -tu2 /dev/urandom | tr -d ' '").loose("x.o", "a random number is in it")
            .cold().fresh().then("again", nothing()).fresh(),
        tool("script-asks-pid", "echo $$").loose("x.o", "the number is in it").cold().fresh().then("again", nothing())
            .fresh(),
        tool("script-asks-processors", "nproc").cold().prelude("taskset -cp 0 $$ >/dev/null")
            .then("one processor", nothing()),
        tool("script-asks-host", "uname -n | wc -c")
            .needs(Need::Works("unshare -u hostname x", "host name of its own")).cold()
            .prelude("exec unshare -u sh -c 'hostname another-longer-name; exec \"$@\"' sh \"$@\"")
            .then("another host", nothing()),
        tool("script-asks-limit", "ulimit -n").cold().prelude("ulimit -n 99").then("another limit", nothing()),
        tool("script-asks-umask", "umask").cold().prelude("umask 077").then("another umask", nothing()),
        tool("script-asks-user", "id -u").needs(Need::Root).cold(),
        tool("script-asks-mtime", "stat -c %Y h.h").cold().then("touched", crate::change::touch("h.h", -77)),
        tool("script-asks-size", "stat -c %s h.h").cold().then("longer", put("h.h", "#define H 11\n")),
        tool("script-asks-newer", "[ h.h -nt x.c ] && echo 1 || echo 2").cold().then("newer", put("h.h", H1)),
        tool("script-asks-niceness", "nice").cold().prelude("renice -n 5 $$ >/dev/null").then("nice", nothing()),
        tool("script-lists", "ls | wc -l").cold().then("one more", put("more", "")),
        tool("script-asks-terminal", "[ -t 2 ] && echo 1 || echo 2").cold().tty(24, 80)
            .then("on a terminal", nothing()),
        tool("script-asks-variable", "echo ${N:-0}").cold().env("N", "5").then("set", nothing()),
        tool("script-asks-cwd-inode", "stat -c %i . | wc -c").cold().then("again", sh(":")),
    ]
}
