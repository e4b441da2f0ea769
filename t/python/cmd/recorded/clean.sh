# What a scenario leaves behind goes: jobs are cancelled, queues started, ranks undrained.
flux queue start --all --quiet
flux queue enable --all --quiet 2>/dev/null
flux cancel --all -q 2>/dev/null
flux queue idle --quiet --timeout=15
for ranks in $(flux resource drain -no '{ranks}' 2>/dev/null); do
    flux resource undrain "$ranks"
done
