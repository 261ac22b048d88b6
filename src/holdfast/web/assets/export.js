import{A as e,Jn as t,Pn as n,R as r,Vr as i,Y as a,j as o,k as s,kr as c,qn as l}from"./start.js";async function u(e){try{await r(p(await c.session(e))),t(i().copied)}catch(e){l(e)}}async function d(e,t){try{let n=await(t===`json`?c.wholeSession(e):c.session(e)),r=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?g(`${r}.json`,JSON.stringify(n,null,2),`application/json`):g(`${r}.md`,p(n),`text/markdown`)}catch(e){l(e)}}async function f(e){try{let t=[];for(let n of e)t.push(p(await c.session(n)));g(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){l(e)}}function p(t){return`${[`# ${t.title||i().untitled}`,...t.system?[h(t.system)]:[],...e(t.messages).map(m)].join(`

`)}\n`}function m({message:e,earlier:t}){let r=e.role===`user`?i().you:o([...t,e]).join(`, `)||e.role,c=a(e.outcome,null),l=[...[...t,e].flatMap(({content:e})=>n(e)).map(()=>i().imageAlt),e.edited?i().editedByPerson:``,c?.label??``].filter(Boolean);return[`## ${r}`,s([...t,e]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};