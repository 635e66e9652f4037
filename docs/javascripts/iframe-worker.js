// A page opened from the disk may start no worker, and the search runs in one: there a hidden frame takes its place.
// (The theme's offline plugin would fetch such a script from elsewhere unless one of this name is given.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      // What the worker's script posts goes to the page, and not to its own window.
      frame.srcdoc = `<script>postMessage = data => parent.postMessage(data, "*")</script><script src="${url}"></script>`;
      this.ready = new Promise(resolve => frame.addEventListener("load", () => resolve(frame.contentWindow)));
      addEventListener("message", event => {
        if (event.source === frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.ready.then(to => to.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
