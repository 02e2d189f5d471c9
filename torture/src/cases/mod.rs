//! The cases, one file for each subject. To add a case, write another `case(…)` into the list of
//! its subject.

mod callers;
mod commands;
mod configure;
mod identity;
mod inputs;
mod outputs;
mod places;
mod rust;
mod rust_cargo;
mod rust_paths;
mod texts;
mod trouble;

use crate::case::Case;
use crate::grain;

/// Returns all cases: once for each of their compilers, and as parts of whole commands.
pub fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = told().iter().flat_map(Case::expanded).collect();
    let carried: Vec<Case> = cases.iter().flat_map(grain::carried_over).collect();
    cases.extend(carried);
    cases
}

/// Returns each case with one of its compilers, and as a part of one kind of whole command. The
/// choice alternates from case to case.
pub fn one_compiler_each() -> Vec<Case> {
    let of_turn = |(at, case): (usize, &Case)| {
        let mut expanded = case.expanded();
        expanded.swap_remove(at % expanded.len())
    };
    let mut cases: Vec<Case> = told().iter().enumerate().map(of_turn).collect();
    let of_turn = |(at, case): (usize, &Case)| {
        let mut carried = grain::carried_over(case);
        (!carried.is_empty()).then(|| carried.swap_remove(at / 2 % 2))
    };
    let carried: Vec<Case> = cases.iter().enumerate().filter_map(of_turn).collect();
    cases.extend(carried);
    cases
}

fn told() -> Vec<Case> {
    let files = [
        inputs::cases,
        places::cases,
        outputs::cases,
        callers::cases,
        trouble::cases,
        configure::cases,
        commands::cases,
        identity::cases,
        rust::cases,
        rust_cargo::cases,
        rust_paths::cases,
    ];
    files.iter().flat_map(|cases| cases()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_of_a_class() {
        let mut seen = BTreeSet::new();
        for case in super::all() {
            let class = case.class().to_owned();
            assert!(crate::table::CLASSES.iter().any(|(letter, _)| *letter == class), "{}", case.name);
            assert!(!case.steps.is_empty(), "{} does nothing", case.name);
            assert!(seen.insert(case.name.clone()), "{} is there twice", case.name);
        }
    }
}
