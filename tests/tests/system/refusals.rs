//! What the machine doesn't give refuses the start, each with its own words and remedy.

use mono_tests::daemon::{Setup, rests};
use serde_json::json;

fn refused(what: &[&str]) -> String {
    let (code, words) = Setup::new().unwrap().lacking(what).refused().unwrap();
    assert_eq!(code, 1, "{words}");
    words
}

#[test]
fn a_kernel_without_landlock_or_with_landlock_off_refuses_the_start() {
    for what in ["landlock-absent", "landlock-forbidden"] {
        let words = refused(&[what]);
        assert!(
            words.contains("offers no Landlock") && words.contains("lsm=…,landlock"),
            "{what}: {words}"
        );
        // Nobody's word replaces it.
        let setup = Setup::new().unwrap().argument("--allow-degraded");
        let (code, words) = setup.lacking(&[what]).refused().unwrap();
        assert!(code == 1 && words.contains("offers no Landlock"), "{words}");
    }
}

#[test]
fn no_user_namespaces_refuse_the_start_unless_an_operator_says_so_and_then_it_shows() {
    let words = refused(&["user-namespaces"]);
    for part in [
        "`user.max_user_namespaces` is 0",
        "set it to at least 64",
        "--allow-degraded",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }

    let setup = Setup::new().unwrap().argument("--allow-degraded");
    let mut daemon = setup.lacking(&["user-namespaces"]).launch().unwrap();
    daemon
        .wait_until("every worker serves", |status| {
            let workers = status["workers"].as_array().unwrap();
            let always = workers.iter().filter(|w| w["role"] != "run");
            let mut serving = always.map(|w| w["state"] == "serving");
            status["degraded"] != json!([]) && serving.all(|serves| serves)
        })
        .unwrap();
    assert_eq!(daemon.send("a", "hello").unwrap().code, 0);
    // One that starts is not confined yet.
    let status = daemon.wait_until("at rest", rests).unwrap();
    assert_eq!(status["ok"], false, "{status}");
    assert!(
        status["degraded"][0]
            .as_str()
            .unwrap()
            .starts_with("no namespaces")
    );
    let shown = daemon.run(&["status"]).unwrap();
    assert_eq!(shown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("no namespaces"));
    for worker in status["workers"].as_array().unwrap() {
        assert_eq!(worker["sandbox"]["seccomp"], 2, "{worker}");
        assert!(
            worker["sandbox"]["landlock_abi"].as_u64().unwrap() >= 6,
            "{worker}"
        );
    }
}

#[test]
fn a_state_folder_on_a_read_only_file_system_refuses_the_start() {
    let setup = Setup::new().unwrap();
    let state = setup.folder().join(".mono-agent");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let path = state.to_string_lossy().into_owned();
    let (code, words) = setup.lacking(&["writable", &path]).refused().unwrap();
    assert_eq!(code, 1);
    assert!(
        words.contains("can't be written") && words.contains("read-only or full"),
        "{words}"
    );
}
