//! Leave to run a tool: a token for it, and the class that it runs in.
//!
//! Compilers and the programs around them take one. A whole command takes none, since what it runs does; a program that
//! larder does not know might be one. A hit takes none.
//!
//! Unaware of: what a token is, how a tool is observed.

use std::time::Duration;

use larder_compiler::{Family, family_of};
use larder_config::{Class, Settings};
use larder_ipc::{Caller, Terms};
use larder_lookup::{Request, kind, subject};
use larder_spawn::{Asker, Command, Needs, Taken, Token, Tokens};
use larder_store::{Counters, Store};
use larder_sys::Rival;

use crate::context::Context;
use crate::fetch::Race;
use crate::typed::file_name;
use crate::{flow, outer};

/// What the log says of a tool that was started as the build itself.
const STEPPED_DOWN: &str = "not in its class, in which tools starved";
/// Who waited for less is not counted.
const COUNTED: Duration = Duration::from_millis(1);

/// For the tool of a request, after waiting for it. `None` where a fetch is there first.
pub(crate) fn take(context: &Context, store: &Store, request: &Request, mut race: Option<&mut Race>) -> Option<Token> {
    let settings = &context.loaded.settings;
    if !settings.tokens || request.family == Family::Command {
        return Some(Token::default());
    }
    let memory_kb = store.needed_kb(&subject(request), &kind(request)).unwrap_or(0);
    let mut wanted = || race.as_mut().is_none_or(|race| !race.hear());
    match tokens(settings).take(asker(memory_kb, true), &mut wanted) {
        Taken::NotWanted => None,
        Taken::Token(token) => {
            if token.waited() >= COUNTED
                && let Ok(counters) = Counters::open(store)
            {
                counters.count_token_wait(token.waited().as_millis() as u64, token.waited_for_memory());
            }
            Some(token)
        }
    }
}

/// Become the tool of a family, in its turn where it may wait.
pub(crate) fn start(context: &Context, command: &Command, family: Family, may_wait: bool) -> i32 {
    let settings = &context.loaded.settings;
    if family == Family::Command {
        return flow::start(command);
    }
    let taken = if settings.tokens {
        tokens(settings).take(Asker { is_handed_on: true, ..asker(0, may_wait) }, &mut || true)
    } else {
        Taken::NotWanted
    };
    let mut token = if let Taken::Token(token) = taken { token } else { Token::default() };
    let command = as_set(settings, family, command, &mut token);
    flow::start_with(&command, &token)
}

/// The same for a tool of which only its name is known.
pub(crate) fn start_named(context: &Context, command: &Command, may_wait: bool) -> i32 {
    let family = family_of(file_name(&command.program)).unwrap_or(Family::Command);
    start(context, command, family, may_wait)
}

/// A tool of a family as the settings have it run: how it is scheduled, and what it asks for as memory. A whole command as
/// the build, since wrappers are in it.
pub(crate) fn as_set(settings: &Settings, family: Family, command: &Command, token: &mut Token) -> Command {
    let mut command = command.clone();
    if family != Family::Command {
        command.manner = token.manner(class(settings), settings.class_cgroup.as_deref());
        if settings.huge_pages {
            ask_for_huge_pages(&mut command.environment);
        }
    }
    command
}

/// What glibc's malloc and jemalloc read. Neither says what a tool computes; what is keyed is the
/// caller's environment, in which they are not. A caller's own is left as it is.
fn ask_for_huge_pages(environment: &mut Vec<Vec<u8>>) {
    const ASKED_BY: [(&[u8], &[u8]); 2] =
        [(b"GLIBC_TUNABLES=", b"glibc.malloc.hugetlb=1"), (b"MALLOC_CONF=", b"thp:always")];
    for (name, value) in ASKED_BY {
        if !environment.iter().any(|variable| variable.starts_with(name)) {
            environment.push([name, value].concat());
        }
    }
}

/// For whom `larderd` does something: the class, and the terms on which remotes are used.
pub(crate) fn caller(settings: &Settings) -> Caller {
    let sends = !settings.remote_read_only;
    let terms = settings.remotes_digest().map(|remotes| Terms { remotes, trust: settings.trust_digest(), sends });
    Caller { class: class(settings), terms }
}

/// The class that is asked for: of tools, and of what `larderd` does for this command.
pub(crate) fn class(settings: &Settings) -> larder_spawn::Class {
    match settings.class {
        Class::Inherit => larder_spawn::Class::Inherit,
        Class::Utility => larder_spawn::Class::Utility,
        Class::Background => larder_spawn::Class::Background,
    }
}

/// What the log says, with how long the tool waited.
pub(crate) fn said(token: &Token, word: String) -> String {
    let word = match token.is_stepped_down() {
        true if word.is_empty() => STEPPED_DOWN.to_owned(),
        true => format!("{word}; {STEPPED_DOWN}"),
        false => word,
    };
    if token.waited() < COUNTED {
        return word;
    }
    let what = match token {
        token if token.gave_up() => "a token in vain",
        token if token.waited_for_memory() => "memory",
        _ => "a token",
    };
    let waited = format!("after waiting {:.3} s for {what}", token.waited().as_secs_f64());
    if word.is_empty() { waited } else { format!("{word}; {waited}") }
}

fn tokens(settings: &Settings) -> Tokens {
    let jobs = u32::try_from(settings.jobs).unwrap_or(u32::MAX);
    Tokens { file: settings.tokens_file.clone(), jobs }
}

fn asker(memory_kb: u64, may_wait: bool) -> Asker {
    Asker { needs: Needs { memory_kb }, is_inside: outer::is_around(), may_wait, is_handed_on: false }
}
