//! Tests of the request to a server.

use super::*;

#[test]
fn a_server_is_asked_as_it_is_told() {
    let owners = Owners { users: vec![(0, 1000, 1), (5, 7, 2)], groups: vec![(0, 1001, 1)] };
    for (owners, life) in [(Some(&owners), Life::AsThread), (None, Life::AsMount)] {
        let wanted = ToServe { server: &[], from: None, name: "lazy-fuse 0 abc deps 1\nname x", owners, life };
        let mut bytes = encode(&wanted);
        assert_eq!(bytes.pop(), Some(0), "a zero byte ends it");
        let asked = decode(std::str::from_utf8(&bytes).expect("is text"));
        let own_mounts = life == Life::AsThread;
        assert_eq!(asked, Some(Asked { own_mounts, owners: owners.cloned(), name: wanted.name.to_owned() }));
        for cut in 0..bytes.len() - wanted.name.len() {
            assert_eq!(decode(std::str::from_utf8(&bytes[..cut]).expect("is text")), None, "{cut}");
        }
    }
    let asked = |users: &str| decode(&format!("{FIRST}\nown-mounts no\nusers{users}\ngroups\nname n"));
    for odd in [" 1", " 1 2", " 1 2 x", " -1 2 3", &" 1 2 3".repeat(RANGES_MAX + 1)] {
        assert_eq!(asked(odd), None, "{odd}");
    }
    assert!(asked(&" 1 2 3".repeat(RANGES_MAX)).is_some());
}
