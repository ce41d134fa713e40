package admin

// The page: its files, which are part of the program.

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"strings"
)

//go:embed page
var pageFiles embed.FS

// pageText is the page, and pageParts what it loads, by path. The name of a part
// changes with what is in it, so a browser may keep it for ever.
var pageText, pageParts = readPage()

type pagePart struct{ kind, text string }

func readPage() (string, map[string]pagePart) {
	read := func(name string) string {
		b, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			panic(err) // it is part of the program
		}
		return string(b)
	}
	html, parts := read("index.html"), map[string]pagePart{}
	for name, kind := range map[string]string{"app.css": "text/css", "app.js": "text/javascript"} {
		text := read(name)
		sum := sha256.Sum256([]byte(text))
		path := "page/" + hex.EncodeToString(sum[:6]) + "/" + name
		html = strings.Replace(html, `"`+name+`"`, `"`+path+`"`, 1)
		parts["/"+path] = pagePart{kind + "; charset=utf-8", text}
	}
	return html, parts
}

// pagePolicy lets the page load its own files and ask its own Ringside, and nothing
// else: no script in a key could run, and nobody can frame it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// page adds the page to mux.
func (s *Server) page(mux *http.ServeMux) {
	s.api(mux)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if s.mayVisit(r) != nil {
			s.index(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", pagePolicy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.ServeContent(w, r, "", s.heart.p.Started, strings.NewReader(pageText))
	})
	for path, part := range pageParts {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", part.kind)
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
			http.ServeContent(w, r, "", s.heart.p.Started, strings.NewReader(part.text))
		})
	}
}
