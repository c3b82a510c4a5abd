//! Every rule of every list is executed here, in an interpreter: allowed as it is written, refused
//! with each argument that it looks at changed. The kernel's own verdict on a sample is in the
//! tests of the launcher.
#![allow(clippy::unwrap_used)]

use super::evaluate::{Answer, Call, run, run_both};
use super::*;
use crate::profile::{Profile, Variant};
use ipc_proto::Role;
use proptest::prelude::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

const VARIANTS: [Variant; 4] = [
    Variant {
        network: false,
        degraded: false,
    },
    Variant {
        network: true,
        degraded: false,
    },
    Variant {
        network: false,
        degraded: true,
    },
    Variant {
        network: true,
        degraded: true,
    },
];

/// The filters of all profiles, both stages.
fn all_filters() -> Vec<(String, Filter)> {
    let mut filters = Vec::new();
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Monod) {
        let profile = Profile::of(role).unwrap();
        for variant in VARIANTS {
            filters.push((format!("{role} 1"), profile.stage1_filter(variant).unwrap()));
            if let Some(filter) = profile.stage2_filter(variant).unwrap() {
                filters.push((format!("{role} 2"), filter));
            }
        }
    }
    filters
}

/// What the decisions say, without any program.
fn decide(filter: &Filter, call: &Call) -> Action {
    let holds = |condition: &Condition| {
        let bits = call.arguments[usize::from(condition.argument)] & condition.mask;
        (bits == condition.value) == condition.equal
    };
    let Some(decision) = filter.calls.get(&call.number) else {
        return filter.unlisted;
    };
    let mut rules = decision.rules.iter();
    let rule = rules.find(|rule| rule.conditions.iter().all(holds));
    rule.map_or(decision.otherwise, |rule| rule.action)
}

/// It ends the process, or leaves it to the filter that does.
fn is_ending(action: Action) -> bool {
    matches!(action, Action::Kill | Action::Before)
}

/// Arguments with which all conditions hold.
fn fitting(conditions: &[Condition]) -> [u64; 6] {
    let mut arguments = [0; 6];
    for condition in conditions {
        let argument = &mut arguments[usize::from(condition.argument)];
        let bits = if condition.equal {
            condition.value
        } else {
            !condition.value
        };
        *argument = (*argument & !condition.mask) | (bits & condition.mask);
    }
    arguments
}

#[test]
fn every_rule_of_every_profile_decides_as_it_is_written() {
    let mut executed = 0;
    for (name, filter) in all_filters() {
        let program = filter.assemble();
        let check = |number: u32, arguments: [u64; 6]| {
            let call = Call::native(number, arguments);
            let expected = decide(&filter, &call);
            let found = run(&program, &call);
            assert_eq!(found, Some(expected.value()), "{name}: {call:?}");
            expected
        };
        for (number, decision) in &filter.calls {
            for rule in &decision.rules {
                let arguments = fitting(&rule.conditions);
                let action = check(*number, arguments);
                // An earlier rule may be stricter, never another one laxer.
                assert!(
                    action == rule.action || is_ending(action),
                    "{name} {number}"
                );
                for condition in &rule.conditions {
                    let at = usize::from(condition.argument);
                    for bit in (0..64).filter(|bit| condition.mask >> bit & 1 == 1) {
                        let mut flipped = arguments;
                        flipped[at] ^= 1 << bit;
                        check(*number, flipped);
                        executed += 1;
                    }
                    // Bits outside the mask mean nothing to the kernel either.
                    let mut noisy = arguments;
                    noisy[at] |= !condition.mask;
                    if rule
                        .conditions
                        .iter()
                        .filter(|c| c.argument == condition.argument)
                        .count()
                        == 1
                    {
                        let action = check(*number, noisy);
                        assert!(
                            action == rule.action || is_ending(action),
                            "{name} {number}"
                        );
                    }
                }
                executed += 1;
            }
            check(*number, [u64::MAX; 6]);
        }
        for number in 0..2048 {
            check(number, [0; 6]);
        }
    }
    assert!(executed > 1000, "{executed}");
}

#[test]
fn calls_of_other_tables_end_the_process() {
    for (name, filter) in all_filters() {
        let program = filter.assemble();
        assert!(is_ending(filter.foreign), "{name}");
        let kill = Some(filter.foreign.value());
        let x32 = Call::native(0x4000_0000 + 39, [0; 6]);
        assert_eq!(run(&program, &x32), kill, "{name}");
        assert_eq!(
            run(&program, &Call::native(u32::MAX, [0; 6])),
            kill,
            "{name}"
        );
        // i386, whose numbers mean other calls.
        let other = Call {
            number: 1,
            architecture: 0x4000_0003,
            arguments: [0; 6],
        };
        assert_eq!(run(&program, &other), kill, "{name}");
        let unknown = Call::native(9999, [0; 6]);
        assert_eq!(
            run(&program, &unknown),
            Some(filter.unlisted.value()),
            "{name}"
        );
    }
}

/// A role, its first filter, and both as programs.
type Pair = (String, Filter, [Vec<Instruction>; 2]);

/// Every profile that has two filters.
fn pairs() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Monod) {
        let profile = Profile::of(role).unwrap();
        for variant in VARIANTS {
            let first = profile.stage1_filter(variant).unwrap();
            if let Some(second) = profile.stage2_filter(variant).unwrap() {
                let programs = [first.assemble(), second.assemble()];
                pairs.push((role.to_string(), first, programs));
            }
        }
    }
    pairs
}

/// An error of the second filter would be stricter than the first one's holding the call, and
/// nobody listens to a call that the second holds.
#[test]
fn what_the_first_filter_ends_the_second_leaves_to_it() {
    let held = Some(Answer {
        value: Action::Kill.value(),
        of_first: true,
    });
    let mut looked_at = 0;
    for (name, filter, [first, second]) in pairs() {
        let mut calls: Vec<Call> = Vec::new();
        for (number, decision) in &filter.calls {
            let ending = decision.rules.iter().filter(|r| r.action == Action::Kill);
            calls.extend(ending.map(|rule| Call::native(*number, fitting(&rule.conditions))));
        }
        assert!(calls.len() > 40, "{name}: {}", calls.len());
        calls.push(Call::native(0x4000_0000 + 101, [0; 6]));
        calls.push(Call {
            number: 26,
            architecture: 0x4000_0003,
            arguments: [0; 6],
        });
        for call in calls {
            assert_eq!(run_both(&first, &second, &call), held, "{name}: {call:?}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 1000, "{looked_at}");
}

#[test]
fn of_two_answers_the_stricter_counts_and_of_equal_ones_the_later() {
    let answer = |value| {
        vec![Instruction {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: value,
        }]
    };
    let strict_first = [
        libc::SECCOMP_RET_KILL_PROCESS,
        libc::SECCOMP_RET_KILL_THREAD,
        libc::SECCOMP_RET_TRAP,
        libc::SECCOMP_RET_ERRNO,
        libc::SECCOMP_RET_USER_NOTIF,
        libc::SECCOMP_RET_ALLOW,
    ];
    let call = Call::native(0, [0; 6]);
    for (strict, a) in strict_first.iter().enumerate() {
        for (lax, b) in strict_first.iter().enumerate() {
            let found = run_both(&answer(*a), &answer(*b), &call).unwrap();
            assert_eq!(found.value, *if strict < lax { a } else { b });
            assert_eq!(found.of_first, strict < lax);
        }
    }
}

#[test]
fn a_program_survives_its_way_through_bytes() {
    let program = all_filters().remove(0).1.assemble();
    let bytes = to_bytes(&program);
    assert_eq!(bytes.len(), program.len() * 8);
    let back = from_bytes(&bytes).unwrap();
    assert!(back == program);
    assert!(from_bytes(&bytes[1..]).is_none());
}

#[test]
fn programs_stay_small_because_installing_them_is_the_price_of_a_start() {
    for (name, filter) in all_filters() {
        let length = filter.assemble().len();
        assert!(length < 600, "{name}: {length} instructions");
    }
}

/// The same filter through the library, as far as that has it: one action, one other action.
fn reference(filter: &Filter, action: Action) -> BpfProgram {
    let condition = |condition: &Condition| {
        let wide = condition.mask > u64::from(u32::MAX);
        let length = if wide {
            SeccompCmpArgLen::Qword
        } else {
            SeccompCmpArgLen::Dword
        };
        let operator = match (condition.equal, wide, condition.mask) {
            (true, ..) => SeccompCmpOp::MaskedEq(condition.mask),
            (false, true, u64::MAX) | (false, false, 0xffff_ffff) => SeccompCmpOp::Ne,
            // The library can't say this; such rules are compared with `decide` alone.
            (false, ..) => return None,
        };
        SeccompCondition::new(condition.argument, length, operator, condition.value).ok()
    };
    let mut rules = std::collections::BTreeMap::new();
    for (number, decision) in &filter.calls {
        let mut chain = Vec::new();
        for rule in decision.rules.iter().filter(|rule| rule.action == action) {
            let conditions: Option<Vec<_>> = rule.conditions.iter().map(condition).collect();
            match conditions {
                Some(conditions) if conditions.is_empty() => {}
                Some(conditions) => chain.push(SeccompRule::new(conditions).unwrap()),
                None => continue,
            }
        }
        if decision.rules.iter().any(|rule| rule.action == action) {
            rules.insert(i64::from(*number), chain);
        }
    }
    let arch = std::env::consts::ARCH.try_into().unwrap();
    SeccompFilter::new(rules, SeccompAction::Errno(1), SeccompAction::Allow, arch)
        .unwrap()
        .try_into()
        .unwrap()
}

proptest! {
    /// With two filters exactly the calls that the first one ends are held, and by that one.
    #[test]
    fn a_second_filter_never_hides_a_call_that_the_first_one_ends(
        arguments in prop::array::uniform6(prop_oneof![0_u64..8, Just(u64::MAX), any::<u64>()]),
        pick in any::<prop::sample::Index>(),
    ) {
        static PAIRS: std::sync::LazyLock<Vec<Pair>> = std::sync::LazyLock::new(pairs);
        let (name, _, [first, second]) = pick.get(&PAIRS);
        for number in 0..512 {
            let call = Call::native(number, arguments);
            let ended = run(first, &call) == Some(Action::Kill.value());
            let both = run_both(first, second, &call).unwrap();
            prop_assert_eq!(both.value == Action::Kill.value(), ended, "{} {:?}", name, call);
            prop_assert!(!ended || both.of_first, "{} {:?}", name, call);
        }
    }

    /// The library compiles the same lists in its own way; both must let the same calls through.
    #[test]
    fn what_is_allowed_is_what_seccompiler_allows(
        arguments in prop::array::uniform6(prop_oneof![
            0_u64..8, Just(0x8_0000), Just(0x1_0000), Just(u64::MAX), Just(0x5421), any::<u64>()
        ]),
        pick in any::<prop::sample::Index>(),
    ) {
        let sets = ["core", "files-own", "net-client", "sockets-inet", "start", "program"];
        let set = pick.get(&sets);
        let filter = Filter::from_sets(&[set], &[]).unwrap();
        let (ours, theirs) = (filter.assemble(), reference(&filter, Action::Allow));
        for number in 0..512 {
            let call = Call::native(number, arguments);
            let expected = run(&theirs, &call) == Some(Action::Allow.value());
            let found = run(&ours, &call) == Some(Action::Allow.value());
            prop_assert_eq!(found, expected, "{} {:?}", set, call);
        }
    }
}
