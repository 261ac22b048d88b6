import{$n as e,A as t,B as n,Bn as r,Fr as i,M as a,Q as o,er as s,j as c,qr as l}from"./start.js";async function u(t){try{await n(p(await i.session(t))),s(l().copied)}catch(t){e(t)}}async function d(t,n){try{let e=await(n===`json`?i.wholeSession(t):i.session(t)),r=(e.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;n===`json`?g(`${r}.json`,JSON.stringify(e,null,2),`application/json`):g(`${r}.md`,p(e),`text/markdown`)}catch(t){e(t)}}async function f(t){try{let e=[];for(let n of t)e.push(p(await i.session(n)));g(`chats.md`,e.join(`
---

`),`text/markdown`)}catch(t){e(t)}}function p(e){return`${[`# ${e.title||l().untitled}`,...e.system?[h(e.system)]:[],...c(e.messages).map(m)].join(`

`)}\n`}function m({message:e,earlier:n}){let i=e.role===`user`?l().you:a([...n,e]).join(`, `)||e.role,s=o(e.outcome,null),c=[...[...n,e].flatMap(({content:e})=>r(e)).map(()=>l().imageAlt),e.edited?l().editedByPerson:``,s?.label??``].filter(Boolean);return[`## ${i}`,t([...n,e]),...c.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};