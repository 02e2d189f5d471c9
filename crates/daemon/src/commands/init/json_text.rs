//! Inserts into JSON text without changing the rest of it: formatting and order stay.
//!
//! Unaware of: what is inserted.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Inserts a member into the object `key` of the text's top-level object, or an element into the
/// array `key`. `member` is the name of the member, or `None` for an array. A missing `key` is
/// added. Fails if the text is not a JSON object, for example if it has comments.
pub(super) fn insert(text: &str, key: &str, member: Option<&str>, value: &Value) -> Result<String> {
    let before: Value = serde_json::from_str(text).context("it is not valid JSON")?;
    ensure!(before.is_object(), "it is not a JSON object");
    let mut wanted = before.clone();
    match (&mut wanted[key], member) {
        (Value::Object(members), Some(name)) => drop(members.insert(name.to_owned(), value.clone())),
        (Value::Array(elements), None) => elements.insert(0, value.clone()),
        (missing @ Value::Null, Some(name)) => *missing = serde_json::json!({ name: value }),
        (missing @ Value::Null, None) => *missing = serde_json::json!([value]),
        _ => bail!("`{key}` has another type than expected"),
    }
    let indent = indent(text);
    if before[key].is_null() {
        let whole = wanted.get(key).map(|value| entry(Some(key), value, &indent, 1));
        let begin = text.find('{').context("it is not a JSON object")? + 1;
        return Ok(with_item(text, begin, &whole.unwrap_or_default(), &indent, 1));
    }
    // The text of the key may also occur elsewhere, for example in a string. The right place is the
    // one that gives the wanted value.
    let quoted = Value::from(key).to_string();
    for (at, _) in text.match_indices(&quoted) {
        let rest = &text[at + quoted.len()..];
        let begin = at + quoted.len() + rest.find(['{', '[']).map_or(0, |found| found + 1);
        let changed = with_item(text, begin, &entry(member, value, &indent, 2), &indent, 2);
        if serde_json::from_str::<Value>(&changed).is_ok_and(|found| found == wanted) {
            return Ok(changed);
        }
    }
    bail!("the place of `{key}` cannot be found")
}

/// Returns the text of a member or element at this depth, without its first indentation.
fn entry(name: Option<&str>, value: &Value, indent: &str, depth: usize) -> String {
    let pretty = format!("{value:#}");
    let lines: Vec<String> = pretty.lines().map(|line| reindented(line, indent)).collect();
    let text = lines.join(&format!("\n{}", indent.repeat(depth)));
    name.map_or(text.clone(), |name| format!("{}: {text}", Value::from(name)))
}

/// Replaces serde's indentation, two spaces a level.
fn reindented(line: &str, indent: &str) -> String {
    let text = line.trim_start();
    indent.repeat((line.len() - text.len()) / 2) + text
}

fn with_item(text: &str, begin: usize, item: &str, indent: &str, depth: usize) -> String {
    let (before, behind) = text.split_at(begin);
    let is_empty = behind.trim_start().starts_with(['}', ']']);
    let end = if is_empty { format!("\n{}", indent.repeat(depth - 1)) } else { ",".to_owned() };
    let behind = if is_empty { behind.trim_start() } else { behind };
    format!("{before}\n{}{item}{end}{behind}", indent.repeat(depth))
}

/// Returns the indentation of the first indented line.
fn indent(text: &str) -> String {
    let spaces = |line: &str| line[..line.len() - line.trim_start().len()].to_owned();
    text.lines().map(spaces).find(|spaces| !spaces.is_empty()).unwrap_or_else(|| "  ".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_stays() {
        let member = |text: &str| insert(text, "scripts", Some("deps"), &"run".into()).expect("inserts");
        assert_eq!(
            member("{\n    \"name\": \"scripts\",\n    \"scripts\": {\n        \"a\": \"b\"\n    }\n}\n"),
            "{\n    \"name\": \"scripts\",\n    \"scripts\": {\n        \"deps\": \"run\",\n        \"a\": \"b\"\n    }\n}\n"
        );
        assert_eq!(member("{\n  \"scripts\": {}\n}"), "{\n  \"scripts\": {\n    \"deps\": \"run\"\n  }\n}");
        assert_eq!(member("{}"), "{\n  \"scripts\": {\n    \"deps\": \"run\"\n  }\n}");
        assert_eq!(member("{\n  \"a\": 1\n}"), "{\n  \"scripts\": {\n    \"deps\": \"run\"\n  },\n  \"a\": 1\n}");
        let element = insert("{\n  \"p\": [\n    {\"n\": 1}\n  ]\n}", "p", None, &serde_json::json!({ "n": 2 }));
        let expected = "{\n  \"p\": [\n    {\n      \"n\": 2\n    },\n    {\"n\": 1}\n  ]\n}";
        assert_eq!(element.expect("inserts"), expected);
    }

    #[test]
    fn what_is_no_json_stays() {
        for text in ["", "[]", "{ // comment\n}", "{\"scripts\": 1}", "{\"scripts\": []}"] {
            assert!(insert(text, "scripts", Some("deps"), &"run".into()).is_err(), "{text}");
        }
    }
}
