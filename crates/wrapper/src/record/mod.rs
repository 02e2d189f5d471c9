//! Makes a record of a run that has ended.
//!
//! | file | does |
//! |---|---|
//! | `ordinary` | decides whether the run ended as it will the next time |
//! | `reduce` | turns the trace into what the run relied on and changed |
//! | `search_paths` | decides how `PATH` and similar variables count |
//! | `of_a_crate` | what is special about rustc |
//! | `uses_of_plugins` | adds what plugins and procedural macros may use unseen |
//! | `archive_times` | reads times and owners in archives |
//! | `dated` | looks for the time of the run in outputs |
//! | `hidden_arguments` | finds arguments in configuration files of clang and in variables |
//! | `shown_status` | looks for inode numbers and mtimes of inputs in outputs and messages |
//! | `canonical_paths` | resolves links and `..` in the directories of paths |
//! | `mtimes` | finds mtimes that the command set itself |
//! | `outputs` | stores outputs and messages |
//! | `preprocess` | runs the preprocessor once more |
//! | `changing_headers` | records the preprocessed text if only headers have changed |
//! | `compiler_parts` | says which parts of a compiler ran, and what they opened |
//! | `cross_check` | compares the result with an earlier one of the same command |
//! | `texts` | searches and splits the texts that `cross_check` compares |
//! | `verify` | compares the result with a recorded one |
//! | `entry` | makes the record, by all of these |
//! | `not_recorded` | why a run is not recorded |
//! | `limit` | keeps the store within its size limit |

mod archive_times;
mod canonical_paths;
mod changing_headers;
mod compiler_parts;
mod cross_check;
mod dated;
mod entry;
mod hidden_arguments;
mod limit;
mod mtimes;
mod not_recorded;
mod of_a_crate;
mod ordinary;
mod outputs;
mod preprocess;
mod reduce;
mod search_paths;
mod shown_status;
mod texts;
mod uses_of_plugins;
mod verify;

pub(crate) use entry::{Recorded, Run};
pub(crate) use limit::keep_within_limit;
pub(crate) use not_recorded::NotRecorded;
pub(crate) use preprocess::preprocess_silently;
