# What comes from outside is fetched on the machine that runs Snakemake (a login node), pinned by hash or commit; every
# other job works offline. Nothing here is there for a study with the bundled game and base.
if plan.fetches_game:

    localrules:
        fetch_game,

    rule fetch_game:
        output:
            "results/receipts/game.json",
        log:
            "logs/game.log",
        conda:
            "../envs/cpu.yaml"
        params:
            spec=plan.spec("fetch_game"),
            code=plan.code("fetch_game"),
        shell:
            "internalize stage fetch_game --spec {params.spec:q} --code {params.code} --output {output} > {log} 2>&1"


if plan.fetches_base:

    localrules:
        base,

    rule base:
        output:
            "results/receipts/base.json",
        log:
            "logs/base.log",
        conda:
            "../envs/cpu.yaml"
        params:
            spec=plan.spec("base"),
            code=plan.code("fetch_base"),
        shell:
            "internalize stage fetch_base --spec {params.spec:q} --code {params.code} --output {output} > {log} 2>&1"
