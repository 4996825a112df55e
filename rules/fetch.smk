# A game that is not bundled is fetched on the machine that runs Snakemake (a login node), pinned by its hash; every other
# job works offline.
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
