#!/bin/sh

test_description='doc/guide/tutorial.rst: every file and command of the page, in order, with the output that it shows'

. "$(dirname "$0")/sharness.sh"

if test -n "$FLUX_TEST_INSTALLED_PATH"; then
	skip_all="the pages are in the source tree"
	test_done
fi
test_under_flux 1 full --conf=fake-resources.nnodes=4 --conf=fake-resources.cores-per-node=8

# Blocks of the page become block.N.sh, in order: a file to be written, or commands with the lines that their output must have.
cat >blocks.py <<'EOF'
import re
import sys
import textwrap

text = open(sys.argv[1], encoding="utf-8").read()
pattern = r"^\.\. code-block:: (python|console)\n((?:   :.*\n)*)\n((?:   .*\n|\n)+)"
number = 0
for kind, options, body in re.findall(pattern, text, re.MULTILINE):
    body = textwrap.dedent(body).strip() + "\n"
    number += 1
    with open(f"block.{number:02}.sh", "w", encoding="utf-8") as stream:
        if kind == "python":
            name = re.search(r":caption: (\S+)", options).group(1)
            stream.write(f"# the file {name}\ncat >{name} <<'END OF FILE'\n{body}END OF FILE\n")
            continue
        stream.write("# " + body.partition("\n")[0].lstrip("$ ") + "\n")
        for command in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, *shown = command.rstrip("\n").split("\n")
            stream.write(f"{command} >output 2>&1 || {{ cat output; exit 1; }}\ncat output\n")
            for line in shown:
                stream.write(f"grep -F -e {line!r} output >/dev/null || {{ echo no {line!r}; exit 1; }}\n")
EOF
flux python blocks.py "$FLUX_SOURCE_DIR/doc/guide/tutorial.rst"

# flux simulate of a real Flux takes a Python with greenlet, as t2300 says.
test -z "$REAL_FLUX" && test_set_prereq SIMULATE

test_expect_success 'the page has its steps' '
	test $(ls block.*.sh | wc -l) -ge 9
'
for block in block.*.sh; do
	prereq=
	grep -q "flux simulate" "$block" && prereq=SIMULATE
	test_expect_success $prereq "$(sed -n "1s/^# //p" "$block" | cut -c1-60)" '
		run_timeout 400 sh "./'"$block"'"
	'
done
test_done
