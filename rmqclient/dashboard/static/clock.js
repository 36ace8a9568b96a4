// A time of day that a person types, such as 14:05, is meant by their own clock, not by that of the server's host.
"use strict";
for (const form of document.querySelectorAll("form[data-clock]")) {
  form.addEventListener("submit", () => {
    const field = form.elements.at;
    const found = /^(\d{1,2}):(\d\d)(?::(\d\d))?$/.exec(field.value.trim());
    if (!found) return;
    const at = new Date();
    at.setHours(Number(found[1]), Number(found[2]), Number(found[3] || 0), 0);
    if (at > new Date()) at.setDate(at.getDate() - 1);
    field.value = at.toISOString();
  });
}
