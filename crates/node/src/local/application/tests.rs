use super::*;

const A: u64 = 0xa << 60;
const B: u64 = 0xb << 60;
const OF_A: &str = "app-a0000000";
const OF_B: &str = "app-b0000000";

struct User {
    directory: tempfile::TempDir,
    settings: Settings,
}

impl User {
    fn new() -> User {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.node.runtime = Some(directory.path().join("run"));
        settings.node.state = Some(directory.path().join("state"));
        User { directory, settings }
    }

    fn starts(&self, identity: u64) -> Application {
        let mut application = Application::find(&self.settings, identity).unwrap();
        application.started();
        application
    }

    /// Writes the record of a helper that was killed while an update was open.
    fn is_killed_in(&self, cluster: &str) {
        use verbena_content::Scope;
        use verbena_content::record::Records;
        let state = self.directory.path().join("state");
        let state = if cluster == "local" { state } else { state.join(APPLICATIONS).join(cluster) };
        make_directory(&state).unwrap();
        let mut record = OpenUpdates::in_directory(state.join("open-updates"));
        record.begin(verbena_terms::Incarnation::new(1, 1), 7, &[(3, Scope::Everything)]);
    }

    fn comes_to_rest(&self, cluster: &str) {
        let state = self.directory.path().join("state");
        let state = if cluster == "local" { state } else { state.join(APPLICATIONS).join(cluster) };
        fs::remove_dir_all(state.join("open-updates")).unwrap();
    }
}

fn name(application: &Application) -> &str {
    application.settings().name()
}

#[test]
fn the_first_has_local_and_each_other_a_cluster_of_its_own() {
    let user = User::new();
    let (a, b) = (user.starts(A), user.starts(B));
    assert_eq!((name(&a), name(&b)), ("local", OF_B));
    assert_eq!(a.settings(), &user.settings, "an application alone is as it ever was");
    let state = user.directory.path().join("state/applications").join(OF_B);
    assert_eq!(b.settings().state_directory().unwrap(), state);
    // The others of each follow.
    assert_eq!((name(&user.starts(A)), name(&user.starts(B))), ("local", OF_B));
    drop((a, b));
    assert_eq!(name(&user.starts(B)), "local", "nobody else is there");
    assert_eq!(name(&user.starts(A)), "local");
}

#[test]
fn all_that_live_at_a_time_are_in_one_cluster() {
    let user = User::new();
    let (a, b) = (user.starts(A), user.starts(B));
    drop(a);
    // `local` is free now, but a proxy of this application runs in its own cluster.
    let second = user.starts(B);
    assert_eq!(name(&second), OF_B);
    drop(b);
    assert_eq!(name(&user.starts(B)), OF_B);
    let a = user.starts(A);
    drop(second);
    assert_eq!((name(&a), name(&user.starts(B))), ("local", OF_B));
}

#[test]
fn a_cluster_with_something_open_is_not_left_and_not_taken() {
    let user = User::new();
    drop(user.starts(A));
    user.is_killed_in("local");
    let b = user.starts(B);
    assert_eq!(name(&b), OF_B, "what A has open is open in there");
    assert_eq!(name(&user.starts(A)), "local", "and A comes back to it");
    drop(b);
    user.is_killed_in(OF_B);
    user.comes_to_rest("local");
    assert_eq!(name(&user.starts(B)), OF_B, "local is free, but does not know what B has open");
    user.comes_to_rest(OF_B);
    assert_eq!(name(&user.starts(B)), "local");
    assert_eq!(name(&user.starts(A)), "local");
}

#[test]
fn who_has_a_name_is_not_asked() {
    let mut user = User::new();
    user.settings.cluster.name = Some("shop".into());
    assert_eq!(user.starts(A).settings(), &user.settings);
    assert!(Applications::beside(&user.settings).unwrap().is_none());
    assert!(!user.directory.path().join("state").exists());
}

#[test]
fn the_first_of_a_cluster_waits_for_updates_that_are_open_and_for_who_starts() {
    let user = User::new();
    drop(user.starts(A));
    let directory = user.directory.path().join("state/applications");
    let starting = Application::find(&user.settings, A).unwrap();
    let open = open(&directory.join(OPEN)).unwrap();
    open.lock_shared().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| user.starts(B));
        std::thread::sleep(2 * AT_A_TIME);
        assert!(!second.is_finished(), "the first is starting");
        let mut starting = starting;
        starting.started();
        std::thread::sleep(2 * AT_A_TIME);
        assert!(!second.is_finished(), "an update is open");
        open.unlock().unwrap();
        let second = second.join().unwrap();
        assert_eq!(name(&second), OF_B);
        let applications = Applications::beside(&user.settings).unwrap().unwrap();
        assert_eq!((applications.lives(OF_B).unwrap(), applications.lives(OF_A).unwrap()), (true, false));
        drop(second);
        assert!(!applications.lives(OF_B).unwrap());
    });
}
