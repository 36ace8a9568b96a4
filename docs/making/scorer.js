// The search ranks what tells a reader how to do a thing before what tells how it was made. Sphinx reads `Scorer`.
"use strict";
const FOLDERS = [
    [/^(start|guide|handling|operate|frameworks|migrate)\//, 10],
    [/^(serve|cluster|spark)\//, 5],
    [/^(reference|explain)\//, 0],
    [/^(decisions|results|project|source|examples)\//, -10],
];
const OTHERS = -5; // pages at the top, such as the architecture and the guarantees
const OF_A_CLASS = -15; // attributes have common names, such as `timeout`

var Scorer = {
    score: ([page, , , description, score, , kind]) => {
        if (kind === "object") return /attribute|property/.test(description) ? score + OF_A_CLASS : score;
        const found = FOLDERS.find(([folder]) => folder.test(page));
        return score + (found ? found[1] : OTHERS);
    },
    objNameMatch: 20,
    objPartialMatch: 0,
    objPrio: { 0: 0, 1: 0, 2: 0 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
};
