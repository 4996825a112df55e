# A segment is a run of consecutive steps of one arm and seed in one process. Its output is the receipt of its last
# step, in a folder of the segment's own; the receipts of its other steps appear beside it. `rows` and `previous` may
# be empty (internalize.inputs says how `--input` words are read).
rule segment:
    input:
        unpack(plan.segment_inputs),
    output:
        "results/receipts/arms/{arm}/seed{seed}/steps{first}-{last}/step{last}.json",
    log:
        "logs/arms/{arm}/seed{seed}/steps{first}-{last}.log",
    conda:
        "../envs/cpu.yaml"
    threads: 1
    resources:
        **plan.resources("segment"),
    params:
        spec=plan.spec("segment"),
        code=plan.code("segment"),
    shell:
        "internalize segment --spec {params.spec:q} --code {params.code} --output {output}"
        " --input base={input.base} --input knowledge={input.knowledge} --input gate={input.gate}"
        " --input 'rows.={input.rows}' --input 'previous={input.previous}' > {log} 2>&1"
