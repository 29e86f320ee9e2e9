const forbidden = new URLSearchParams(location.search).get("forbidden");
fetch(`http://127.0.0.1:${forbidden}/worker`).then(it => it.text(), it => "failed").then(postMessage);
