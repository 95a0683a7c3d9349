// Starts Swagger UI on this server's own description. A file, because nothing inline may run.
"use strict";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const shade = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", shade);
shade();

window.addEventListener("DOMContentLoaded", () => {
  SwaggerUIBundle({
    url: "/-/openapi.json",
    domNode: document.getElementById("api"),
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayOperationId: true,
    tryItOutEnabled: true,
    validatorUrl: null, // it is on another host
  });
});
