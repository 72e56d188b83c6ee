//! Profiles: each measures on the simulated testbed what it was set from.

use onesided_sim::{Parameter, Profile, ProfileError};

/// Within 1 %: the shares of a sum are whole nanoseconds.
#[test]
fn each_profile_measures_what_it_was_set_from() {
    for name in Profile::SHIPPED {
        let profile = Profile::shipped(name).unwrap();
        assert!(!profile.checks.is_empty(), "{name}");
        for check in &profile.checks {
            let ours = profile.measure(&check.measures).unwrap();
            let off = ours / check.value - 1.0;
            assert!(off.abs() < 0.01, "{name}, {}: {ours:.4} for {} {}", check.measures, check.value, check.unit);
        }
    }
}

#[test]
fn each_parameter_has_a_source() {
    for name in Profile::SHIPPED {
        let profile = Profile::shipped(name).unwrap();
        let nameless = profile.parameters.iter().find(|(_, parameter)| parameter.source.is_empty());
        assert!(nameless.is_none(), "{name}: {nameless:?}");
        assert!(profile.parameters.keys().map(String::as_str).eq({
            let mut names: Vec<_> = Profile::names().collect();
            names.sort_unstable();
            names
        }));
        let by_default = |parameter: &&Parameter| parameter.source == Parameter::DEFAULT;
        assert!(profile.parameters.values().filter(|parameter| !by_default(parameter)).count() > 5, "{name}");
    }
}

#[test]
fn what_a_profile_does_not_name_and_what_is_changed_is_shown() {
    let profile = Profile::shipped("infinihost").unwrap();
    let shown = |profile: &Profile, name: &str| {
        let Parameter { value, unit, source } = &profile.parameters[name];
        format!("{value} {unit}: {source}")
    };
    assert_eq!(shown(&profile, "timeout"), "100000 ns: default");
    assert_eq!(shown(&profile, "room"), "64 1: default");
    assert_eq!(shown(&profile, "slice"), "60 ms: Linux");
    let changed = profile.with("slice", 1000.0).unwrap().with("loss", 0.25).unwrap();
    assert_eq!(
        (shown(&changed, "slice"), shown(&changed, "loss")),
        ("1000 ns: changed".into(), "0.25 1: changed".into())
    );
    assert_eq!(changed.network().loss, 0.25);
}

/// Every cost changes the measurement that it is part of.
#[test]
fn an_ablation_changes_one_cost() {
    let profile = || Profile::shipped("infinihost").unwrap();
    let measured = |profile: Profile, what| profile.measure(what).unwrap();
    for (name, what) in [
        ("latency", "write"),
        ("post", "write"),
        ("doorbell", "write"),
        ("send", "write"),
        ("deliver", "write"),
        ("poll", "write"),
        ("interrupt", "write to a sleeper"),
        ("wake", "write to a sleeper"),
        ("switch", "write to a sleeper"),
        ("read", "read"),
        ("atomic", "compare-swap"),
    ] {
        let more = profile().with(name, 9000.0).unwrap();
        assert!(measured(more, what) > measured(profile(), what) + 1.0, "{name}");
    }
    let one = profile().with("outstanding", 1.0).unwrap();
    assert!(measured(one, "lock loop") > measured(profile(), "lock loop") + 1.0);
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let parse = |parameter: &str| Profile::parse(&format!("title = ''\n[parameters]\n{parameter}")).unwrap_err();
    assert!(matches!(parse("latency = 3"), ProfileError::Syntax(_)));
    let wrong = |name: &str, value: &str, unit: &str| {
        parse(&format!("{name} = {{ value = {value}, unit = '{unit}', source = '' }}"))
    };
    assert_eq!(wrong("lateness", "1", "us"), ProfileError::Name("lateness".into()));
    for (name, value, unit) in [
        ("latency", "-1", "us"),
        ("latency", "1", "1"),
        ("latency", "1", "fortnights"),
        ("cores", "1.5", "1"),
        ("cores", "1", "us"),
        ("locked-progress", "2", "1"),
        ("loss", "1.5", "1"),
        ("loss", "1", "us"),
        ("bandwidth", "-1", "MB/s"),
    ] {
        assert!(matches!(wrong(name, value, unit), ProfileError::Value(..)), "{name} = {value} {unit}");
    }
    assert!(matches!(Profile::shipped("infinicard"), Err(ProfileError::Name(_))));
    assert_eq!(Profile::shipped("shm").unwrap().measure("nothing"), None);
}
