rule knowledge:
    input:
        game=plan.game_receipt(),
    output:
        "results/receipts/knowledge.json",
    log:
        "logs/knowledge.log",
    conda:
        "../envs/cpu.yaml"
    resources:
        **plan.resources("knowledge"),
    params:
        spec=plan.spec("knowledge"),
        code=plan.code("knowledge"),
    shell:
        "internalize stage knowledge --spec {params.spec:q} --code {params.code} --output {output}"
        " --input 'game={input.game}' > {log} 2>&1"
