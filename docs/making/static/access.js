// Code and tables that scroll sideways can be reached by the keyboard; side bars have names,
// and neither an empty head of a table nor a list of parameters pretends to be more than it is.
"use strict";
const become = (tag, className) => (element) => {
    const other = document.createElement(tag);
    other.className = className;
    other.append(...element.childNodes);
    element.replaceWith(other);
};
document.addEventListener("DOMContentLoaded", () => {
    document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
    document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
    [...document.querySelectorAll("article th")].filter((each) => !each.textContent.trim()).forEach(become("td", "head"));
    document.querySelectorAll("dt.sig dl > dd").forEach(become("div", "parameter")); // definitions without terms
    document.querySelectorAll("dt.sig dl").forEach(become("div", "parameters"));
    const follow = new ResizeObserver((seen) => seen.forEach(({ target }) => {
        if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
        else target.removeAttribute("tabindex");
    }));
    document.querySelectorAll("article pre, article .table-wrapper").forEach((each) => follow.observe(each));
});
