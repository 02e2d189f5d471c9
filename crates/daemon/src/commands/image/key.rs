//! Expands the template of a key with the environment, and with files relative to the working
//! directory.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use larder_image::{Facts, expand, files_in};
use larder_model::{Digest, ImageKey};
use larder_store::StatCache;

use crate::cli::ImageWanted;
use crate::surroundings::Surroundings;

struct Here<'a> {
    around: &'a Surroundings,
    cwd: &'a Path,
}

impl Facts for Here<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.around.variable(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    fn files(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        files_in(self.cwd, pattern)
    }

    fn content(&self, file: &Path) -> std::io::Result<Digest> {
        StatCache::none().hash(&mut File::open(self.cwd.join(file))?)
    }
}

/// Expands a template to a key.
pub(super) fn key(around: &Surroundings, template: &str) -> Result<ImageKey> {
    expanded(around, template, "key")
}

/// A wanted key, and prefixes of keys that are taken if there is no image of it.
pub(super) struct Wanted {
    pub(super) key: ImageKey,
    pub(super) fallbacks: Vec<String>,
}

/// Expands the wanted key and the fallbacks.
pub(super) fn wanted(around: &Surroundings, wanted: &ImageWanted) -> Result<Wanted> {
    let key = key(around, &wanted.key)?;
    let fallback = |template: &String| Ok(expanded(around, template, "fallback")?.text().to_owned());
    Ok(Wanted { key, fallbacks: wanted.fallback.iter().map(fallback).collect::<Result<_>>()? })
}

fn expanded(around: &Surroundings, template: &str, what: &str) -> Result<ImageKey> {
    let here = Here { around, cwd: around.cwd()? };
    expand(template, &here).with_context(|| format!("the {what} `{template}`"))
}
