// Starts Swagger UI with this server's OpenAPI document. A file, because inline scripts are not allowed.
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
