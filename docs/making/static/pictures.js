// A picture with a dark twin follows the theme that the reader chose here, and not only the one of the system.
"use strict";
(() => {
    const sources = () => document.querySelectorAll('picture source[media*="prefers-color-scheme"], picture source[data-dark]');
    const follow = () => {
        const theme = document.body.dataset.theme;
        for (const source of sources()) {
            source.dataset.dark = "";
            source.media = { dark: "all", light: "not all" }[theme] ?? "(prefers-color-scheme: dark)";
        }
    };
    document.addEventListener("DOMContentLoaded", () => {
        follow();
        new MutationObserver(follow).observe(document.body, { attributeFilter: ["data-theme"] });
    });
})();
