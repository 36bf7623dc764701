// pictures.js - the pictures of a message: which files are taken, how they are shown, and how they are sent: as they are, in base64.
//
// The server says the same of a file that it refuses, but only once the message stands in the conversation; so what the browser can tell
// is told when a picture is attached.
const pictures = (() => {
  const MOST = 16, FILE_BYTES = 20 << 20, SIDE = 16384, PIXELS = 50e6; // as the server's
  const problem = (file, text) => Object.assign(new Error(`${file.name || "The picture"}: ${text}`), { told: true });

  // The first bytes tell the format, not the name.
  async function kind_of(file) {
    const head = new Uint8Array(await file.slice(0, 12).arrayBuffer()), text = String.fromCharCode(...head);
    if (text.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
    if (text.startsWith("\xff\xd8\xff")) return "image/jpeg";
    return text.startsWith("RIFF") && text.endsWith("WEBP") ? "image/webp" : null;
  }

  async function check_size(file) {
    const image = await createImageBitmap(file).catch(() => { throw problem(file, "the file is damaged."); });
    const { width, height } = image;
    image.close();
    if (Math.max(width, height) > SIDE || width * height > PIXELS) {
      throw problem(file, `${width} x ${height} pixels; at most ${SIDE} a side and ${PIXELS / 1e6} million.`);
    }
  }

  function show(file) {
    const image = element("img"), url = URL.createObjectURL(file);
    image.alt = file.name;
    image.onload = image.onerror = () => URL.revokeObjectURL(url);
    image.src = url;
    return image;
  }

  return {
    MOST,
    // Resolves to the picture that a turn keeps; rejects with what is wrong with the file.
    async check(file) {
      if (file.size > FILE_BYTES) throw problem(file, `${(file.size / (1 << 20)).toFixed(1)} MiB; at most ${FILE_BYTES >> 20}.`);
      const type = await kind_of(file).catch(() => { throw problem(file, "the browser cannot read it."); });
      if (!type) throw problem(file, "not a PNG, JPEG or WebP picture.");
      await check_size(file);
      return new File([file], file.name || "picture", { type });
    },
    list: (files, extra = () => []) => files.map(file => {
      const li = element("li");
      li.append(show(file), ...extra(file));
      return li;
    }),
    bytes: files => files.reduce((sum, file) => sum + Math.ceil(file.size / 3) * 4, 0), // of a request
    part: file => new Promise((yes, no) => {
      const reader = new FileReader();
      reader.onload = () => yes({ type: "image_url", image_url: { url: reader.result } });
      reader.onerror = () => no(problem(file, "the browser has lost it."));
      reader.readAsDataURL(file);
    }),
  };
})();
