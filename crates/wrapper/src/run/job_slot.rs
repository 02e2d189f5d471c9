//! Acquires a job slot for a tool, and sets what else the settings ask for: the scheduling class in
//! which the tool runs, and huge pages.
//!
//! Compilers and programs such as assemblers take a slot. A whole command (`larder run`) takes
//! none, because the tools inside it do; nor does an unknown program, because it may be such a
//! command. A hit takes none.
//!
//! Unaware of: how slots are kept, how a tool is observed.

use std::time::Duration;

use larder_compiler::{Family, family_of};
use larder_config::Settings;
use larder_lookup::{kind, subject};
use larder_model::path::file_name;
use larder_spawn::{Asker, Command, Needs, Taken, Token, Tokens};
use larder_store::Counters;
use larder_sys::Rival;

use super::parent_run;
use super::start;
use crate::caller::class;
use crate::context::Context;
use crate::request_context::RequestContext;

/// Log text for a tool that was started with the priority of the build, because tools in its class
/// got no processor time.
const STEPPED_DOWN: &str = "run with the priority of the build, because tools in its class starved";
/// Shorter waits are not counted.
const COUNTED: Duration = Duration::from_millis(1);

/// Waits for a job slot for the tool of a request. Returns `None` if the fetch is faster.
pub(crate) fn take(cx: RequestContext, mut race: Option<&mut dyn Rival>) -> Option<Token> {
    let RequestContext { context, store, request, .. } = cx;
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

/// Takes a job slot and becomes the tool. It waits for a slot only if `may_wait` is true.
pub(crate) fn start(context: &Context, command: &Command, family: Family, may_wait: bool) -> i32 {
    let settings = &context.loaded.settings;
    if family == Family::Command {
        return start::start(command);
    }
    let taken = if settings.tokens {
        tokens(settings).take(Asker { is_handed_on: true, ..asker(0, may_wait) }, &mut || true)
    } else {
        Taken::NotWanted
    };
    let mut token = if let Taken::Token(token) = taken { token } else { Token::default() };
    let command = as_set(settings, family, command, &mut token);
    start::start_with(&command, &token)
}

/// Becomes a tool whose family is known by its name only. Returns as `start` does.
pub(crate) fn start_named(context: &Context, command: &Command, may_wait: bool) -> i32 {
    let family = family_of(file_name(&command.program)).unwrap_or(Family::Command);
    start(context, command, family, may_wait)
}

/// Returns the command changed as the settings ask: its scheduling class and its use of huge pages.
/// A whole command keeps the class of the build, because the wrappers inside it set it for their
/// tools.
pub(crate) fn as_set(settings: &Settings, family: Family, command: &Command, token: &mut Token) -> Command {
    let mut command = command.clone();
    if family != Family::Command {
        command.sched_policy = token.sched_policy(class(settings), settings.class_cgroup.as_deref());
        if settings.huge_pages {
            ask_for_huge_pages(&mut command.environment);
        }
    }
    command
}

/// Sets the variables by which glibc's malloc and jemalloc use huge pages, unless the caller has
/// set them. They do not change what a tool computes, and they are not in the key, which is made of
/// the caller's environment.
fn ask_for_huge_pages(environment: &mut Vec<Vec<u8>>) {
    const ASKED_BY: [(&[u8], &[u8]); 2] =
        [(b"GLIBC_TUNABLES=", b"glibc.malloc.hugetlb=1"), (b"MALLOC_CONF=", b"thp:always")];
    for (name, value) in ASKED_BY {
        if !environment.iter().any(|variable| variable.starts_with(name)) {
            environment.push([name, value].concat());
        }
    }
}

/// Adds to the log text `word` how long the tool waited for its job slot, and whether it had to
/// leave its class.
pub(crate) fn message(token: &Token, word: String) -> String {
    let word = match token.is_stepped_down() {
        true if word.is_empty() => STEPPED_DOWN.to_owned(),
        true => format!("{word}; {STEPPED_DOWN}"),
        false => word,
    };
    if token.waited() < COUNTED {
        return word;
    }
    let what = match token {
        token if token.gave_up() => "a job slot in vain",
        token if token.waited_for_memory() => "memory",
        _ => "a job slot",
    };
    let waited = format!("after waiting {:.3} s for {what}", token.waited().as_secs_f64());
    if word.is_empty() { waited } else { format!("{word}; {waited}") }
}

fn tokens(settings: &Settings) -> Tokens {
    let jobs = u32::try_from(settings.jobs).unwrap_or(u32::MAX);
    Tokens { file: settings.tokens_file.clone(), jobs }
}

fn asker(memory_kb: u64, may_wait: bool) -> Asker {
    Asker { needs: Needs { memory_kb }, is_inside: parent_run::is_around(), may_wait, is_handed_on: false }
}
