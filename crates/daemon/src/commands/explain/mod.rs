//! `larder explain`: what would happen to a command now. It uses the lookup code of the wrapper
//! (`larder_lookup`).
//!
//! `flow` takes the steps in the wrapper's order. `fields` compares two actions, `between` two
//! runs, `facts` describes what a record relies on, `secret` hides secrets in the output,
//! `sentence` sums up, and `show` prints. `past` explains commands that have ended.
//!
//! It never runs the tool, and changes nothing except the stat cache.

mod between;
mod explanation;
mod facts;
mod fields;
mod past;
pub(super) mod secret;
mod sentence;
mod show;

use std::io::Write;
use std::os::unix::ffi::OsStringExt;

use anyhow::{Result, bail};
use larder_compiler::{Family, is_masquerade_name};
use larder_config::Settings;
use larder_lookup::{
    Abilities, Answer, EarlierRecords, Place, Request, STREAMS, Scope, TextRequest, Tool, ask, by_text,
    choose_observer, find, remapped, remedy, subject,
};
use larder_model::path::file_name;
use larder_model::{ActionResult, Bound, Bypass, Content, Digest, Fallback, Manifest, Output};
use larder_spawn::Destinations;
use larder_store::{Effort, ManifestFile, StatCache, Store, StoreError};

use super::FINE;
use crate::cli::Explain;
use crate::say;
use crate::surroundings::{Surroundings, nobody};
use explanation::{About, Explanation, Hit, Miss, Nearest, OutputLine, RejectedLine, Verdict};
use facts::FactCounts;

/// Explains the command, in text or JSON.
pub(crate) fn run(around: &Surroundings, options: Explain, out: &mut dyn Write) -> Result<u8> {
    if options.last_build {
        return super::last_build::causes(around, options.json, options.markdown, out);
    }
    if let Some(code) = past::run(around, &options, out)? {
        return Ok(code);
    }
    let (json, verbose) = (options.json, options.verbose);
    let explanation = flow(around, options)?;
    if json {
        super::print_json(&show::object(&explanation), out)?;
    } else {
        show::text(&explanation, verbose, out)?;
    }
    Ok(FINE)
}

/// Takes the steps in the wrapper's order.
fn flow(around: &Surroundings, options: Explain) -> Result<Explanation> {
    let verbose = options.verbose;
    let destinations = if options.no_terminal { no_terminal() } else { Destinations::now() };
    let mut place = around.place(destinations)?;
    let typed: Vec<Vec<u8>> = options.command.into_iter().map(OsStringExt::into_vec).collect();
    let (mut argv, any_command) = without_ourselves(typed.clone(), around)?;
    // The command was typed without larder in front, so the build may use it with or without `run`.
    let is_bare = typed == argv;
    let understand = if any_command.is_some() { Request::of_any_command } else { Request::new };
    place.scope = any_command.unwrap_or_default();
    let tool = tool_of(&argv, around)?;
    argv[0] = tool.first_argument(&argv[0]);
    let shown = say::clean(&tool.path);
    let settings = around.settings();
    let mut notes = Vec::new();
    let early = |verdict| Ok(Explanation { tool: shown.clone(), about: None, verdict, notes: Vec::new() });
    let store = match open_store(settings) {
        Ok(store) => store,
        Err(verdict) => return early(*verdict),
    };
    // Opening the stat cache for writing must not create a store.
    let stat_cache = StatCache::open(&store, store.directory().exists() && !settings.read_only);
    let argv = remapped(argv, &tool, &place);
    let understood = match understand(tool.clone(), argv.clone(), &place, &stat_cache) {
        Err(Bypass::UnknownTool) if is_bare => {
            notes.push("larder caches this tool only as `larder run -- COMMAND`, so that is what is explained");
            Request::of_any_command(tool, argv, &place, &stat_cache)
        }
        understood => understood,
    };
    let request = match understood {
        Ok(request) => request,
        Err(reason) => return Ok(Explanation { tool: shown, about: None, verdict: Verdict::Bypass(reason), notes }),
    };
    notes.extend(notes_about(settings));
    let observer = observer(&request, &place, &store, &stat_cache, settings);
    let asked = |place: &Place| {
        let own =
            verdict(store.read_manifest(&request.weak, false), settings, &store, &stat_cache, &request, place, verbose);
        if !matches!(own, Verdict::Miss(_)) || !store.is_only_read() {
            return own;
        }
        // If the store is read-only, as in a sandbox, the wrapper also uses handed-over records.
        let handed_over = store.read_handed_over(&request.weak, false);
        match verdict(handed_over, settings, &store, &stat_cache, &request, place, verbose) {
            hit @ Verdict::Hit(_) => hit,
            _ => own,
        }
    };
    let mut found = asked(&place);
    if options.no_terminal && is_about_streams(&found) {
        // It is not known whether stdout and stderr are one file in the build, as they are behind
        // ninja or with `2>&1`. So both are tried.
        place.destinations.same = !place.destinations.same;
        let other = asked(&place);
        found = if is_about_streams(&other) { found } else { other };
    }
    let verdict = match found {
        Verdict::Miss(miss) => Verdict::Miss(Miss { observer, running: miss.running && settings.wait, ..miss }),
        other => other,
    };
    if is_of_another_directory(&request, &verdict) && !place.roots.remap_rust {
        notes.push("the crate was compiled in another directory: with rust_paths = \"remap\", such a result is reused");
    }
    let _ = stat_cache.settle(&store);
    Ok(Explanation { tool: shown, about: Some(about(&request)), verdict, notes })
}

/// Opens the store. Returns the verdict if larder would not look up any command.
fn open_store(settings: &Settings) -> Result<Store, Box<Verdict>> {
    if larder_sys::file_size_is_limited() {
        return Err(Verdict::Bypass(Bypass::Limited).into());
    }
    if settings.disable {
        return Err(Verdict::Bypass(Bypass::Disabled).into());
    }
    let dir = settings.dir.as_ref().ok_or_else(|| Verdict::Fallback(Fallback::NoStore, String::new()))?;
    Store::open(dir).map_err(|error| Verdict::Fallback(error.fallback(), error.to_string()).into())
}

/// Returns what to say about settings that change what happens after the lookup.
fn notes_about(settings: &Settings) -> Vec<&'static str> {
    let mut notes = Vec::new();
    if settings.recache {
        notes.push("LARDER_RECACHE is set: the tool would run and be recorded again in any case");
    }
    if settings.read_only {
        notes.push("LARDER_READ_ONLY is set: nothing is recorded");
    }
    notes
}

/// Returns the name of the observer that a run would have, if the tool can be observed.
fn observer(
    request: &Request,
    place: &Place,
    store: &Store,
    stat_cache: &StatCache,
    settings: &Settings,
) -> Option<&'static str> {
    let known = |key: &Digest| store.judgement(key);
    let abilities = Abilities::new(place, &known, &|_, _| {});
    let choice = choose_observer(request, place, (store, stat_cache), settings.observer, &abilities);
    choice.ok().map(|choice| choice.name().name())
}

fn no_terminal() -> Destinations {
    Destinations { stdout: None, stderr: None, ..Destinations::now() }
}

/// Returns true if a record was rejected because of how stdout and stderr relate to each other.
fn is_about_streams(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Miss(miss) if miss.rejected.iter().any(|line| line.subject == STREAMS))
}

fn about(request: &Request) -> About {
    About {
        source: say::clean(request.subject()),
        output: request.invocation.output.as_deref().map(say::clean),
        roots: request.roots.paths().iter().map(|root| say::clean(root)).collect(),
        fingerprint: request.weak.hex(),
    }
}

/// Removes larder from the front of the command, because people copy lines such as `larder gcc …`
/// or `larder run -- gcc …`. Returns the scope of `run`, if the line has it.
fn without_ourselves(mut argv: Vec<Vec<u8>>, around: &Surroundings) -> Result<(Vec<Vec<u8>>, Option<Scope>)> {
    let mut any_command = None;
    let path = around.variable(b"PATH");
    // `larder explain run -- make` is as clear as `larder explain larder run -- make`.
    if argv.first().is_some_and(|word| word == b"run") && find(b"run", path, &nobody(), false).is_none() {
        argv.insert(0, b"larder".to_vec());
    }
    while argv.len() > 1 && !is_masquerade_name(file_name(&argv[0])) {
        let found = find(&argv[0], path, &nobody(), false);
        if argv[0] != b"larder" && !found.is_some_and(|tool| around.ourselves.is(&tool)) {
            break;
        }
        argv.remove(0);
        if argv.len() > 1 && argv[0] == b"run" {
            argv.remove(0);
            let Ok(scope) = Scope::take(&mut argv) else {
                bail!("explain: the options of `run` are wrong: see `larder help run`")
            };
            any_command = Some(scope);
        } else if argv.len() > 1 && argv[0] == b"--" {
            argv.remove(0);
        }
    }
    Ok((argv, any_command))
}

/// Returns the program that the wrapper would start. If the name leads to a masquerading link, the
/// wrapper's rules for such links apply.
fn tool_of(argv: &[Vec<u8>], around: &Surroundings) -> Result<Tool> {
    let path = around.variable(b"PATH");
    let typed = &argv[0];
    let first = find(typed, path, &nobody(), false);
    let masquerading = is_masquerade_name(file_name(typed)) && first.is_some_and(|tool| around.ourselves.is(&tool));
    let name = if masquerading { file_name(typed) } else { typed.as_slice() };
    match find(name, path, &around.ourselves, masquerading) {
        Some(tool) => Ok(tool),
        None if argv.len() == 1 && is_file_name(typed) => bail!(
            "explain: larder knows no command that read or wrote {}: build it through larder, or give the command, as \
             in `larder explain gcc -c x.c`",
            say::clean(typed)
        ),
        None => bail!("{}: command not found: write the command as the build runs it", say::clean(typed)),
    }
}

/// Returns true if a person who types this word means a file and not a command. For example, `x.o`.
fn is_file_name(typed: &[u8]) -> bool {
    file_name(typed).contains(&b'.') || larder_sys::stat(typed).is_ok()
}

/// Returns true if a crate of Rust was recorded in another working directory, and nothing else of the
/// command differs.
fn is_of_another_directory(request: &Request, verdict: &Verdict) -> bool {
    let Verdict::Miss(Miss { nearest: Nearest::Differs(differences), .. }) = verdict else { return false };
    let is_directory = |what: &str| matches!(what, "working directory" | "PWD");
    request.family == Family::Rustc
        && !differences.is_empty()
        && differences.iter().all(|difference| is_directory(&difference.what))
}

fn verdict(
    file: Result<Option<ManifestFile>, StoreError>,
    settings: &Settings,
    store: &Store,
    stat_cache: &StatCache,
    request: &Request,
    place: &Place,
    verbose: bool,
) -> Verdict {
    let file = match file {
        Ok(Some(file)) => file,
        Ok(None) => return unrecorded(store, stat_cache, request, place),
        Err(error) => return Verdict::Fallback(error.fallback(), error.to_string()),
    };
    let manifest = match Manifest::decode(&file.bytes) {
        Ok(mut manifest) if manifest.weak == request.weak => {
            manifest.keep_believed(&settings.remote_trust);
            manifest
        }
        Ok(_) => {
            return Verdict::Fallback(
                Fallback::Damaged,
                "the file holds the manifest of another fingerprint".to_owned(),
            );
        }
        Err(error) => return Verdict::Fallback(Fallback::Damaged, error.to_string()),
    };
    let (mut rejected, mut effort) = (Vec::new(), Effort::default());
    let answer = ask(&manifest, request, place, store, stat_cache, &mut rejected, &mut effort);
    let known = EarlierRecords::of(&manifest, &rejected);
    let read = |content: &Content| store.content_bytes(content, stat_cache).ok();
    let line = |rejected| rejected_line(rejected, &manifest, request, &read);
    let rejected: Vec<RejectedLine> = rejected.iter().map(line).collect();
    let (result, observer, at) = match answer {
        Some(Answer { result, observer, .. }) => (result, observer, rejected.len()),
        None => {
            let facts = if verbose { facts_of(&manifest, 0, request) } else { Vec::new() };
            let running = store.running(&known.turn(request, place, stat_cache)).is_some();
            let by_text =
                TextRequest::of(request, place).is_some() && !by_text(&manifest, request, place, stat_cache).is_empty();
            return Verdict::Miss(Miss { rejected, nearest: Nearest::Itself, observer: None, running, by_text, facts });
        }
    };
    if let Some(blob) = result.blobs().find(|blob| !store.has_blob(blob)) {
        return Verdict::Fallback(Fallback::BlobMissing, format!("blob {}", blob.digest));
    }
    if let Err(error) = larder_store::permitted(&result, &request.roots, request) {
        return Verdict::Fallback(Fallback::Materialise, error.to_string());
    }
    let entry = &manifest.entries[at];
    Verdict::Hit(Hit {
        record: at + 1,
        records: manifest.entries.len(),
        observer: observer.name(),
        run_time_us: entry.run_time_us,
        exit_code: result.exit_code,
        outputs: outputs(&result, request),
        counts: entry.open().map(|(set, _)| FactCounts::of(&set)).unwrap_or_default(),
        effort,
        bound: entry.bound.map(|bound| bound_text(bound, entry.bound_by, remedy(bound, request, place))),
        rejected,
        facts: if verbose { facts_of(&manifest, at, request) } else { Vec::new() },
    })
}

/// Says why a result is valid only in the checkout where it was made, and what would lift that
/// limit.
fn bound_text(bound: Bound, by: &[u8], remedy: Option<&str>) -> String {
    // The parts of paths that are shared are not for people.
    let is_shown = !by.is_empty() && bound != Bound::AsNamed;
    let by = if is_shown { format!(" ({})", say::clean(by)) } else { String::new() };
    let remedy = remedy.map(|remedy| format!("; this would lift it: {remedy}")).unwrap_or_default();
    format!("{}{by}{remedy}", bound.reason())
}

/// Returns a path as it is from the working directory, if it is below that.
fn below_cwd<'a>(path: &'a [u8], cwd: &[u8]) -> &'a [u8] {
    path.strip_prefix(cwd).and_then(|path| path.strip_prefix(b"/")).unwrap_or(path)
}

fn rejected_line(
    rejected: &larder_lookup::Rejected,
    manifest: &Manifest,
    request: &Request,
    read: &between::Read,
) -> RejectedLine {
    let (roots, cwd) = (&request.roots, request.action.cwd.as_slice());
    let subject = &rejected.why.subject;
    let unlike = between::first_difference(manifest, rejected.entry, roots, read);
    RejectedLine {
        record: rejected.entry + 1,
        observer: rejected.observer.name(),
        subject: facts::inherited(subject).map_or_else(|| say::clean(below_cwd(subject, cwd)), str::to_owned),
        what: [Some(say::one_line(&rejected.why.what)), unlike].into_iter().flatten().collect::<Vec<_>>().join("; "),
    }
}

fn facts_of(manifest: &Manifest, at: usize, request: &Request) -> Vec<String> {
    let set = manifest.entries.get(at).and_then(|entry| entry.open().ok());
    set.map(|(set, _)| facts::lines(&set, &request.roots)).unwrap_or_default()
}

fn outputs(result: &ActionResult, request: &Request) -> Vec<OutputLine> {
    let line = |output: &Output| {
        let (kind, size_bytes) = facts::output_kind(&output.kind);
        OutputLine { path: facts::local(output.path, &request.roots), kind, size_bytes }
    };
    result.outputs.iter().map(line).collect()
}

/// Handles a fingerprint without records: compares the action with the last one of the same source
/// and output.
fn unrecorded(store: &Store, stat_cache: &StatCache, request: &Request, place: &Place) -> Verdict {
    let nearest = match store.neighbour(&subject(request)) {
        None => Nearest::Nothing,
        Some(weak) => match store.read_manifest(&weak, false) {
            Ok(Some(file)) => Manifest::decode(&file.bytes).map_or(Nearest::Gone, |near| compare(&near, request)),
            _ => Nearest::Gone,
        },
    };
    let running = store.running(&EarlierRecords::default().turn(request, place, stat_cache)).is_some();
    Verdict::Miss(Miss { rejected: Vec::new(), nearest, observer: None, running, by_text: false, facts: Vec::new() })
}

fn compare(near: &Manifest, request: &Request) -> Nearest {
    if near.fields.is_empty() {
        return Nearest::Fetched;
    }
    let walk = larder_lookup::secret::explained(request);
    let now: Vec<(&[u8], &[u8])> = walk.fields.iter().map(|f| (f.name.as_bytes(), f.value.as_slice())).collect();
    Nearest::Differs(fields::differences(&near.fields, &now))
}
