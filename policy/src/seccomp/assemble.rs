//! From decisions to a program for the kernel: a binary search over ranges of call numbers.
//!
//! `seccompiler` compares the number with every listed call in turn. For the list of ordinary
//! programs that makes 1,800 instructions, and the kernel walks them for each call number when a
//! filter is installed, to know which need no run: 0.6 ms at every start of a worker. Ranges make
//! 300 instructions and take a tenth. The tests hold this program against `seccompiler`'s.

use super::{Condition, Decision, Filter, Instruction};

// Of linux/bpf_common.h: load word, compare, and, return.
const LOAD: u16 = 0x20;
const JUMP_ALWAYS: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

// Of linux/seccomp.h: offsets in struct seccomp_data.
pub(super) const NUMBER: u32 = 0;
pub(super) const ARCHITECTURE: u32 = 4;
pub(super) const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
pub(crate) const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(crate) const AUDIT_ARCH: u32 = 0xc000_00b7;

/// Numbers from here on are the x32 calls of x86-64: another table, which no list here is about.
pub(crate) const X32: u32 = 0x4000_0000;

fn statement(code: u16, k: u32) -> Instruction {
    Instruction {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// From this number up to the next range's start, this program.
struct Range {
    start: u32,
    program: Vec<Instruction>,
}

pub(super) fn assemble(filter: &Filter) -> Vec<Instruction> {
    let mut program = vec![
        statement(LOAD, ARCHITECTURE),
        jump(JUMP_EQUAL, AUDIT_ARCH, 1, 0),
        statement(RETURN, filter.foreign.value()),
        statement(LOAD, NUMBER),
    ];
    program.extend(search(&ranges(filter)));
    program
}

fn ranges(filter: &Filter) -> Vec<Range> {
    let unlisted = || vec![statement(RETURN, filter.unlisted.value())];
    let mut ranges = vec![Range {
        start: 0,
        program: unlisted(),
    }];
    let mut push = |start: u32, program: Vec<Instruction>| {
        match ranges.last_mut() {
            // An empty range, or one more call of the same kind.
            Some(last) if last.start == start => last.program = program,
            Some(last) if last.program == program => {}
            _ => ranges.push(Range { start, program }),
        }
    };
    for (number, decision) in &filter.calls {
        push(*number, leaf(decision));
        push(number + 1, unlisted());
    }
    push(X32, vec![statement(RETURN, filter.foreign.value())]);
    ranges.dedup_by(|next, previous| next.program == previous.program);
    ranges
}

fn search(ranges: &[Range]) -> Vec<Instruction> {
    let [single] = ranges else {
        let (low, high) = ranges.split_at(ranges.len() / 2);
        let below = search(low);
        let mut program = match u8::try_from(below.len()) {
            Ok(distance) => vec![jump(JUMP_AT_LEAST, high[0].start, distance, 0)],
            // Conditional jumps reach 255 instructions.
            Err(_) => vec![
                jump(JUMP_AT_LEAST, high[0].start, 0, 1),
                statement(JUMP_ALWAYS, u32::try_from(below.len()).unwrap_or(u32::MAX)),
            ],
        };
        program.extend(below);
        program.extend(search(high));
        return program;
    };
    single.program.clone()
}

/// The rules of one call, each falling through to the next.
fn leaf(decision: &Decision) -> Vec<Instruction> {
    if let Some(action) = decision.constant() {
        return vec![statement(RETURN, action.value())];
    }
    let mut program = Vec::new();
    for rule in &decision.rules {
        // Built backwards: where a failing test jumps depends on what follows it.
        let mut tail = vec![statement(RETURN, rule.action.value())];
        for condition in rule.conditions.iter().rev() {
            let mut test = test(condition, tail.len());
            test.append(&mut tail);
            tail = test;
        }
        program.append(&mut tail);
    }
    program.push(statement(RETURN, decision.otherwise.value()));
    program
}

/// Falls through when the condition holds, else skips `rest` more instructions. A rule has a few
/// conditions of a few instructions, so the distances fit.
fn test(condition: &Condition, rest: usize) -> Vec<Instruction> {
    let offset = ARGUMENTS + 8 * u32::from(condition.argument);
    let (low, high) = if cfg!(target_endian = "little") {
        (0, 4)
    } else {
        (4, 0)
    };
    let half = |shift: u32, at: u32| {
        let mask = (condition.mask >> shift) as u32;
        let value = (condition.value >> shift) as u32;
        let mut load = vec![statement(LOAD, offset + at)];
        if mask != u32::MAX {
            load.push(statement(AND, mask));
        }
        (mask != 0).then_some((load, value))
    };
    let halves: Vec<_> = [half(0, low), half(32, high)]
        .into_iter()
        .flatten()
        .collect();
    let distance = |instructions: usize| u8::try_from(instructions).unwrap_or(u8::MAX);

    let mut program = Vec::new();
    let mut sizes: usize = halves.iter().map(|(load, _)| load.len() + 1).sum();
    for (index, (load, value)) in halves.iter().enumerate() {
        program.extend(load.iter().cloned());
        sizes -= load.len() + 1;
        let last = index + 1 == halves.len();
        program.push(if condition.equal {
            // A half that differs: skip the other half and the rest.
            jump(JUMP_EQUAL, *value, 0, distance(sizes + rest))
        } else if last {
            jump(JUMP_EQUAL, *value, distance(rest), 0)
        } else {
            // A half that differs is enough to hold: skip only the other half.
            jump(JUMP_EQUAL, *value, 0, distance(sizes))
        });
    }
    program
}
