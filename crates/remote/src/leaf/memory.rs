//! A remote in memory for tests and simulations. A test chooses its abilities.
//!
//! Unaware of: what objects contain.

use crate::remote::MarkOf;
use crate::{Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, SMALL_BYTES_MAX, Stored, body, collect, whole};
use bytes::Bytes;
use larder_model::Digest;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Objects in memory.
pub struct Memory {
    name: Arc<str>,
    abilities: Abilities,
    objects: Mutex<HashMap<Key, Bytes>>,
}

impl Memory {
    /// Returns an empty remote that supports everything.
    pub fn new(name: &str) -> Self {
        Memory::with(name, Abilities::STORE)
    }

    /// Returns an empty remote with these abilities.
    pub fn with(name: &str, abilities: Abilities) -> Self {
        Memory { name: name.into(), abilities, objects: Mutex::default() }
    }

    /// Returns how many objects there are.
    pub fn len(&self) -> usize {
        self.objects.lock().len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the object of a key without a request.
    pub fn peek(&self, key: Key) -> Option<Bytes> {
        self.objects.lock().get(&key).cloned()
    }

    fn store(&self, key: Key, bytes: Bytes, how: Put) -> Stored {
        let mut objects = self.objects.lock();
        if objects.contains_key(&key) && (how == Put::IfAbsent || !self.abilities.replace) {
            return Stored::Existed;
        }
        objects.insert(key, bytes);
        Stored::New
    }
}

impl Remote for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        // Lets other tasks run, as a request to a service would.
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(self.peek(key).map(|bytes| (Some(bytes.len() as u64), whole(bytes))))
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        Box::pin(async move {
            self.abilities.takes(&self.name, key, size)?;
            let body = body::exactly(self.name.clone(), key, size, body);
            let bytes = collect(&self.name, key, body, size).await?;
            tokio::task::yield_now().await;
            Ok(self.store(key, bytes, how))
        })
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let objects = self.objects.lock();
            Ok(keys.iter().map(|key| objects.contains_key(key)).collect())
        })
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(self.peek(key).map(|bytes| (bytes.clone(), Mark(MarkOf::Bytes(Digest::of(&bytes))))))
        })
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        Box::pin(async move {
            self.abilities.takes(&self.name, key, (bytes.len() as u64).min(SMALL_BYTES_MAX))?;
            let mut objects = self.objects.lock();
            let same = match (objects.get(&key), &seen) {
                (None, None) => true,
                (Some(now), Some(Mark(MarkOf::Bytes(then)))) => Digest::of(now) == *then,
                _ => false,
            };
            if same {
                objects.insert(key, bytes);
            }
            Ok(same)
        })
    }
}
