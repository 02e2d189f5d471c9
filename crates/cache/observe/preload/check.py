#!/usr/bin/env python3
"""Builds the preloaded library and checks that it works: runs commands under it, decodes the log,
and compares the paths that cc1 and as looked at with those that strace saw.

With --sanitize the library is compiled with AddressSanitizer and with
UndefinedBehaviorSanitizer. The second ends a process by a trap."""
import glob, os, re, resource, shutil, struct, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
T = tempfile.mkdtemp(prefix="larder-check.")
FLAGS = ("-std=gnu11 -O2 -fPIC -shared -nostdlib -fvisibility=hidden -fno-stack-protector -fno-builtin "
         "-fno-tree-loop-distribute-patterns -U_FORTIFY_SOURCE -Wall -Wextra -Werror "
         "-Wl,-soname,larder-preload.so -Wl,-z,noexecstack -Wl,-z,initfirst -Wl,-z,noseparate-code "
         "-Wl,-z,norelro").split()
SANITIZE = "--sanitize" in sys.argv[1:]
RUNTIME = None
if SANITIZE:
    # The runtime is preloaded as well, and starts before the library. In the child of a vfork, a stack that it marks is
    # also the parent's: so variables are kept elsewhere, and what alloca gives is not marked.
    FLAGS = [flag for flag in FLAGS if flag not in ("-nostdlib", "-Wl,-z,initfirst")]
    FLAGS += ["-fsanitize=address,undefined", "-fsanitize-undefined-trap-on-error", "-g",
              "--param", "asan-instrument-allocas=0"]
    said = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    RUNTIME = os.path.realpath(said)
    # The runtime is not the first library, and programs leak. To switch core dumps off, it would call the library before
    # it is ready for that.
    os.environ["ASAN_OPTIONS"] = ("verify_asan_link_order=0:detect_leaks=0:disable_coredump=0:"
                                  "detect_stack_use_after_return=1")
KINDS = ("? START OBJECT EXEC EXEC_FAILED SPAWNED ANONYMOUS DROP OPEN STAT LSTAT ACCESS READLINK REALPATH LIST "
         "UNLINK RENAME LINK SYMLINK MKDIR RMDIR CHMOD TRUNCATE UTIME MKNOD CHOWN XATTR GETENV UMASK TIME NET "
         "UNIX IDENTITY DIED CLOSED RANDOM FORKED SHORTAGE LATE").split()
DROPS = "? STATIC SUID CLASS SANITIZED UNREADABLE PRELOAD_GONE FEXECVE UNSUPPORTED".split()
EVENT = struct.Struct("<IHHIiQQQqqIIII")
SIZE = 64 << 20
VERSION = int(re.search(r"LARDER_LOG_VERSION (\d+)u", open(f"{HERE}/log.h").read()).group(1))
bad = 0


def build():
    out = f"{T}/larder-preload.so"
    subprocess.run(["gcc", *FLAGS, "-o", out, *sorted(glob.glob(f"{HERE}/*.c"))], check=True)
    said = subprocess.run(["readelf", "-dVrW", "--dyn-syms", out], capture_output=True, text=True).stdout
    if SANITIZE:
        return out
    say("no NEEDED, no versions", "NEEDED" not in said and "No version information" in said and "@" not in said)
    undefined = [l.split()[-1] for l in said.splitlines() if " UND " in l and "WEAK" not in l]
    say("all undefined symbols are weak", undefined == ["UND"] or not undefined, undefined)
    return out


def say(what, good, more=""):
    global bad
    bad += not good
    print(("ok    " if good else "WRONG ") + what, more if not good or more else "")


class Event:
    def __init__(self, raw, at):
        (self.size, k, self.flags, self.pid, self.error, self.dev, self.ino, self.bytes, self.mtime, self.ctime,
         self.mode, a, b, self.extra) = EVENT.unpack_from(raw, at)
        self.kind = KINDS[k]
        text = raw[at + 72:at + 72 + a + b]
        self.path, self.path2 = os.fsdecode(text[:a]), os.fsdecode(text[a:])

    def __repr__(self):
        return f"<{self.pid} {self.kind} {self.path!r} {self.path2!r} e{self.error} f{self.flags} x{self.extra}>"


def new_log():
    fd = os.memfd_create("log")
    os.ftruncate(fd, SIZE)
    os.pwrite(fd, struct.pack("<8sIIQQ5QQ", b"LARDLOG1", VERSION, 0, SIZE, 20480, 0, 0, 0, 0, 0, int(time.time())), 0)
    return fd


def env_plain(**more):
    e = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH")}
    e.update(more)
    old = [x for x in (RUNTIME, e.pop("LD_PRELOAD", None)) if x is not None]
    if old:
        e["LD_PRELOAD"] = ":".join(old)
    return e


def env_for(fd, **more):
    e = env_plain(**more)
    old = e.pop("LD_PRELOAD", None)
    e["LD_PRELOAD"] = LIB + (":" + old if old is not None else "")
    e["LARDER_PRELOAD_LOG"] = f"/proc/{os.getpid()}/fd/{fd}"
    return e


def decode(fd):
    head = struct.unpack("<8sIIQQ", os.pread(fd, 32, 0))
    raw = os.pread(fd, min(head[4], SIZE), 0)
    at, out = 20480, []
    while at < len(raw):
        e = Event(raw, at)
        assert e.size, "an event was not committed"
        out.append(e)
        at += e.size
    assert not head[2], "overflow"
    return out


def run(argv, **more):
    """Runs a command with and without the library.

    Returns its result with the library, the events, whether both results are the same, and its
    result without the library."""
    plain = subprocess.run(argv, capture_output=True, cwd=T, env=env_plain(**more))
    fd = new_log()
    seen = subprocess.run(argv, capture_output=True, cwd=T, env=env_for(fd, **more))
    events = decode(fd)
    os.close(fd)
    same = (plain.returncode, plain.stdout, plain.stderr) == (seen.returncode, seen.stdout, seen.stderr)
    return seen, events, same, plain


def drops(events):
    return [(DROPS[e.extra], e.path) for e in events if e.kind == "DROP"]


def unanswered(events):
    """Returns the executions, by pid or by SPAWNED, after which the program wrote no START."""
    waiting, out = {}, []
    for e in events:
        if e.kind == "EXEC":
            waiting[e.pid] = e
        elif e.kind in ("EXEC_FAILED", "START"):
            waiting.pop(e.pid, None)
        elif e.kind == "SPAWNED":
            w = waiting.pop(e.pid, None)
            if not any(x.kind == "START" and x.pid == e.extra for x in events):
                out.append(w)
    return out + list(waiting.values())


def check(name, argv, want_drop=None, quiet=False, **more):
    _, events, same, plain = run(argv, **more)
    d = drops(events)
    good = same and not unanswered(events) and (not d if want_drop is None else any(x[0] == want_drop for x in d))
    say(name, good, f"{len(events)} events, drops {d[:4]}" + ("" if same else f" OUTPUT DIFFERS {_} {plain}")
        + (f" unanswered {unanswered(events)}" if unanswered(events) else ""))
    return events


LOOK = ("OPEN STAT LSTAT ACCESS READLINK LIST UNLINK EXEC").split()
CALLS = {"open": "OPEN", "openat": "OPEN", "creat": "OPEN", "stat": "STAT", "lstat": "LSTAT", "newfstatat": "STAT",
         "statx": "STAT", "access": "ACCESS", "faccessat": "ACCESS", "faccessat2": "ACCESS", "readlink": "READLINK",
         "unlink": "UNLINK", "execve": "EXEC"}


def strace(argv, programs):
    """Returns {program: set of (path, errno or "", call)} of these programs, by strace.

    The calls of the loader before a program begins are left out."""
    for f in glob.glob(f"{T}/st.*"):
        os.unlink(f)
    subprocess.run(["strace", "-ff", "-qq", "-s", "4096", "-e", "trace=file,mprotect,prlimit64", "-o", f"{T}/st", *argv],
                   cwd=T, check=True, capture_output=True)
    out = {}
    for f in glob.glob(f"{T}/st.*"):
        program, began = None, False
        for line in open(f, errors="replace"):
            m = re.match(r'(\w+)\((?:AT_FDCWD, )?"([^"]*)"', line)
            failed = re.search(r"= -1 (\w+)", line)
            if m and m[1] == "execve" and not failed:
                program, began = os.path.basename(m[2]), False
            elif line.startswith("prlimit64("):  # the last call of glibc's start, after relocation
                began = True
            elif m and began and m[2] and program in programs:
                path = m[2] if m[2].startswith("/") else f"{T}/{m[2]}"
                out.setdefault(program, set()).add((path, failed[1] if failed else "", m[1]))
    return out


def compare(name, argv, programs):
    truth = strace(argv, programs)
    _, events, _, _ = run(argv)
    program, seen = {}, {}
    for e in events:
        if e.kind == "START":
            program[e.pid] = os.path.basename(e.path)
        p = program.get(e.pid)
        p = "as" if p and p.endswith("-as") else p
        if e.kind in LOOK or e.kind == "REALPATH":
            seen.setdefault(p, set()).add((e.path, bool(e.error)))
    for p in programs:
        missing = []
        got = seen.get(p, set())
        real = {x for x, _ in got}
        for path, failed, call in sorted(truth.get(p, ())):
            if path.startswith("/proc/") or re.search(r"/tmp/cc\w+\.", path) or call == "getcwd":
                continue
            if re.match(r"/usr/(share|lib)/locale/|/usr/lib/[^/]+/gconv/", path):
                continue  # libc opens these itself: they are kept with the verdict
            if call == "readlink" and any(os.path.normpath(x).startswith(path) for x in real):
                continue  # a component of a path that realpath resolves
            if (path, bool(failed)) not in got:
                missing.append((call, path, failed))
        say(f"{name}: {p} against strace, {len(truth.get(p, ()))} names", p in truth and not missing, missing[:12])


def write(name, text, mode=0o644):
    with open(f"{T}/{name}", "w") as f:
        f.write(text)
    os.chmod(f"{T}/{name}", mode)


def cost(argv, runs=50):
    def precise(env):
        a = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, cwd=T, env=env, check=True)
        b = resource.getrusage(resource.RUSAGE_CHILDREN)
        return b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime

    plain, seen = [], []
    for _ in range(runs):
        plain.append(precise(dict(os.environ)))
        fd = new_log()
        seen.append(precise(env_for(fd)))
        os.close(fd)
    p, s = sorted(plain)[runs // 2], sorted(seen)[runs // 2]
    print(f"cost  {p * 1000:.2f} ms unobserved, {s * 1000:.2f} ms observed: ratio {s / p:.3f} "
          f"(minima {min(seen) / min(plain):.3f})")


def main():
    write("a.c", "#include <stdio.h>\n#include <stdlib.h>\n#include <pthread.h>\n#include \"a.h\"\nint main(void){puts(\"x\");return 0;}\n")
    write("a.h", "int a;\n")
    write("b.cc", "#include <iostream>\nint main(){std::cout<<1;}\n")
    write("args.c", 'extern int printf(const char*,...);extern char**environ;int main(int c,char**v){for(;*v;v++)printf("%s\\n",*v);'
          'for(v=environ;*v;v++)printf("%s\\n",*v);return 0;}\n')
    write("script", "#!./interp -x\n", 0o755)
    write("noexec", "echo $0 $1\n", 0o755)
    write("Makefile", "all: x.o\n\t@echo $(wildcard *.h) $(shell echo hi)\nx.o: a.c\n\t@gcc -c $< -o $@\nclean:\n\trm -f x.o\n")
    for cmd in (["gcc", "args.c", "-o", "args"], ["gcc", "args.c", "-o", "interp"], ["gcc", "-static", "args.c", "-o", "args.static"],
                ["musl-gcc", "args.c", "-o", "args.musl"], ["gcc", "-fsanitize=address", "args.c", "-o", "args.asan"],
                ["gcc", "-fsanitize=address", "-static-libasan", "args.c", "-o", "args.sasan"],
                ["clang", "-fsanitize=address", "args.c", "-o", "args.casan"]):
        if subprocess.run(cmd, cwd=T, capture_output=True).returncode:
            print("      (cannot build", cmd[-1] + ")")
    check("gcc -c", ["gcc", "-c", "a.c"])
    check("gcc -pipe -c", ["gcc", "-pipe", "-c", "a.c"])
    check("g++ -c", ["g++", "-c", "b.cc"])
    check("clang -c", ["clang", "-c", "a.c"])
    check("link", ["gcc", "a.c", "-o", "a.out"])
    check("gcc fails", ["gcc", "-c", "absent.c"])
    check("sh -c", ["sh", "-c", "gcc -c a.c && cat a.h > /dev/null; (cd /; cat a*) 2>&1; true | cat"])
    ev = check("env", ["env"])
    check("env, with LD_PRELOAD", ["sh", "-c", "env; ./args 1 2"], LD_PRELOAD="/lib/x86_64-linux-gnu/libm.so.6")
    check("env, with an empty LD_PRELOAD", ["sh", "-c", "env; ./args 1 2"], LD_PRELOAD="")
    py = next(p for p in ("/usr/bin/python3", sys.executable) if os.path.exists(p))
    ev = check("python", [py, "-S", "-c", "import os; os.listdir('.'); os.stat('a.h')"])
    say("python's listing is seen", any(e.kind == "LIST" and e.path == f"{T}/." for e in ev))
    check("make", ["make", "-s", "clean", "all"])
    check("perl", ["perl", "-e", "system('echo $0'); system('./args','1'); print `echo 2`; -e 'nothing'"])
    check("a static program", ["sh", "-c", "./args.static 1"], "STATIC")
    for name in ("args.musl", "args.asan", "args.sasan", "args.casan"):
        # A second runtime, or one of another libc, cannot be loaded into these.
        if os.path.exists(f"{T}/{name}") and not SANITIZE:
            check(name, ["sh", "-c", f"./{name} 1; ./args"], "SANITIZED" if name in ("args.asan", "args.casan") else None)
    for script in ("os.execvp('noexec', ['n','1'])", "os.execvp('absent', ['n'])", "os.execv('./script', ['n','1'])",
                   "print(os.waitpid(os.posix_spawn('./args', ['a'], {'X':'1'}), 0)[1])",
                   "print(os.waitpid(os.posix_spawnp('args', ['a'], {'LD_PRELOAD':''}), 0)[1])",
                   "os.posix_spawnp('absent', ['a'], {})", "os.system('./args 1')", "print(os.popen('./args 1').read())",
                   "import subprocess; subprocess.run(['args'])", "import subprocess; subprocess.run(['./args'], env={})",
                   "os.mkdir('d'); os.chdir('d'); os.rmdir('../d'); print(os.path.exists('x'))"):
        if SANITIZE and "{" in script:
            continue  # The environment lacks the runtime's LD_PRELOAD.
        check(script, [py, "-S", "-c", "import os\nos.environ['PATH']=os.environ['PATH']+':.'\ntry:\n " + script + "\nexcept OSError as e: print(e)"])
    if shutil.which("fakeroot") and not SANITIZE:  # Its own library starts before the runtime.
        _, ev, same, _ = run(["fakeroot", "sh", "-c", "touch f; chown 1:1 f; stat -c %u f"])
        say("fakeroot behind it", same, drops(ev)[:3])
    compare("gcc -c", ["gcc", "-c", "a.c"], ["cc1", "as"])
    compare("g++ -c", ["g++", "-c", "b.cc"], ["cc1plus", "as"])
    if not SANITIZE:
        cost(["gcc", "-c", "a.c"])


LIB = None
if __name__ == "__main__":
    try:
        built = build()
        keep = os.memfd_create("preload")
        os.write(keep, open(built, "rb").read())
        LIB = f"/proc/{os.getpid()}/fd/{keep}"
        main()
    finally:
        shutil.rmtree(T)
    sys.exit(bad > 0)
