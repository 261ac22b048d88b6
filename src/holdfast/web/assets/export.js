import{A as e,In as t,M as n,Ur as r,X as i,Xn as a,Yn as o,j as s,jr as c,z as l}from"./start.js";async function u(e){try{await l(p(await c.session(e))),a(r().copied)}catch(e){o(e)}}async function d(e,t){try{let n=await(t===`json`?c.wholeSession(e):c.session(e)),r=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?g(`${r}.json`,JSON.stringify(n,null,2),`application/json`):g(`${r}.md`,p(n),`text/markdown`)}catch(e){o(e)}}async function f(e){try{let t=[];for(let n of e)t.push(p(await c.session(n)));g(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){o(e)}}function p(e){return`${[`# ${e.title||r().untitled}`,...e.system?[h(e.system)]:[],...s(e.messages).map(m)].join(`

`)}\n`}function m({message:a,earlier:o}){let s=a.role===`user`?r().you:n([...o,a]).join(`, `)||a.role,c=i(a.outcome,null),l=[...[...o,a].flatMap(({content:e})=>t(e)).map(()=>r().imageAlt),a.edited?r().editedByPerson:``,c?.label??``].filter(Boolean);return[`## ${s}`,e([...o,a]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};