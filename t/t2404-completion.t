#!/bin/sh

test_description='completion of flux sched and flux simulate, in bash and zsh: the words are those that the commands take'

. "$(dirname "$0")/sharness.sh"

completions=$FLUX_SOURCE_DIR/src/completions
if test -n "$REAL_FLUX$FLUX_TEST_INSTALLED_PATH" || ! test -d "$completions"; then
	skip_all="the files are tested once, with the embedded instance in its tree"
	test_done
fi
command -v bash >/dev/null && test_set_prereq BASH
command -v zsh >/dev/null && test_set_prereq ZSH

# complete WORD...: the offers of bash for the last word, on one line in order.
complete() {
	bash --norc --noprofile -c '
	_flux_core() { COMPREPLY=(from-flux-core); }
	. "$1/flux-scheduler.bash" || exit 1
	shift
	COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
	function=$(builtin complete -p "$1") && function=${function#*-F } && ${function%% *} 2>/dev/null
	printf "%s\n" "${COMPREPLY[@]}" | sort -u | tr "\n" " " | sed "s/ $//"' bash "$completions" "$@"
}

test_expect_success 'the options of the parsers' '
	cat >options.py <<-\EOF &&
	import sys
	from flux.scheduler.command import cli
	from flux.simulate import command, tuning

	def options(parser):
	    return {max(a.option_strings, key=len) for a in parser._actions if a.option_strings}

	sched = cli.make_parser()
	commands = next(a for a in sched._actions if a.dest == "command").choices
	print("sched", *sorted(options(sched) | set(commands)))
	for name, parser in commands.items():
	    print("sched-" + name, *sorted(options(parser)))
	print("simulate", *sorted(options(command.make_parser()) | {"sample", "compare", "check", "tune"}))
	print("simulate-tune", *sorted(options(tuning.make_parser()) | {"sample"}))
	EOF
	flux python options.py >known &&
	grep "^sched-reserve --at-end" known
'
words_of() {
	sed -n "s/^ *\"\{0,1\}$1\"\{0,1\}) echo \"\(.*\)\" ;;\$/\1/p" "$2" | tr " " "\n" | sort -u | tr "\n" " " | sed "s/ \$//"
}
test_expect_success 'both files have them, command by command' '
	while read name words; do
		wanted=$(echo "$words" | tr " " "\n" | sort -u | tr "\n" " " | sed "s/ \$//")
		for file in flux-scheduler.bash _flux-scheduler; do
			found=$(words_of "$(echo $name | sed "s/-/ /")" "$completions/$file") &&
			test "$found" = "$wanted" || { echo "$file: $name has $found, the command takes $wanted"; return 1; }
		done
	done <known
'
test_expect_success BASH 'bash: the commands, beside those of flux-core' '
	test "$(complete flux "")" = "from-flux-core sched simulate" &&
	test "$(complete flux sc)" = "from-flux-core sched" &&
	test "$(complete flux jobs -)" = from-flux-core
'
test_expect_success BASH 'bash: subcommands, their options, and values of options' '
	test "$(complete flux sched res)" = "reservations reserve" &&
	test "$(complete flux sched windows --h)" = "--help --horizon" &&
	test "$(complete flux sched reserve x --at-end "")" = "cancel run" &&
	test "$(complete flux sched reserve x --at-end = c)" = "cancel" &&
	test "$(complete flux simulate --sc)" = "--scale-arrivals --scheduler --script" &&
	test "$(complete flux-simulate --engine "")" = "instance lean" &&
	test "$(complete flux-simulate compare --d)" = "--diff"
'
test_expect_success BASH 'bash: files' '
	>trace.swf &&
	test "$(complete flux-simulate tr)" = trace.swf &&
	test "$(complete flux sched check-config tr)" = trace.swf
'
# offers WORD...: the offers of the function for zsh, before zsh drops those that do not begin with the last word.
offers() {
	cat >offers.zsh <<-\EOF &&
	file=$1; shift
	compadd() { shift; print -l -- $@ }
	_files() { print FILES }
	compset() { : }
	words=("$@") CURRENT=$# PREFIX=${@[-1]} service=$1
	. $file
	EOF
	zsh -f offers.zsh "$completions/_flux-scheduler" "$@" | sort | tr "\n" " " | sed "s/ \$//"
}
test_expect_success ZSH 'zsh: the same' '
	test "$(offers flux "")" = "sched simulate" &&
	offers flux sched "" | grep "explain.*reserve .*windows" &&
	test "$(offers flux sched windows --)" = "--help --horizon --json --utc" &&
	test "$(offers flux sched reserve x --at-end "")" = "cancel run" &&
	test "$(offers flux-simulate --engine=)" = "instance lean" &&
	test "$(offers flux-simulate compare -)" = "--across --diff --help --output" &&
	test "$(offers flux jobs "")" = FILES &&
	offers flux sched topology "" | grep FILES &&
	test "$(offers flux-simulate --conf "")" = FILES
'
test_done
