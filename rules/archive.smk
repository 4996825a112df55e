# Everything that the study leaves behind, as one folder: `internalize verify results/archive`. The manifest is an output
# so that a deleted archive comes back; its files are hard links into the store where they can be.
rule archive:
    input:
        unpack(plan.archive_inputs),
    output:
        receipt="results/receipts/archive.json",
        sums="results/archive/MANIFEST.sha256",
    log:
        "logs/archive.log",
    conda:
        "../envs/cpu.yaml"
    threads: 8
    resources:
        **plan.resources("archive"),
    params:
        spec=plan.spec("archive"),
        code=plan.code("archive"),
    shell:
        "internalize archive --spec {params.spec:q} --code {params.code} --output {output.receipt}"
        " --folder results/archive --threads {threads}"
        " --input knowledge={input.knowledge} --input base={input.base} --input gate={input.gate}"
        " --input report={input.report} --input 'rows.={input.rows}' --input 'harvest.={input.harvest}'"
        " --input 'game={input.game}' --input 'convert.={input.convert}'"
        " --input 'evals.={input.evals}' --input 'step.*={input.segments}' > {log} 2>&1"
